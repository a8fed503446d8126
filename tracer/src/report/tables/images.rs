//! Where running threads spent their CPU time, from samples.

use super::Roles;
use crate::events::syscalls;
use crate::events::{ImageId, Syscall};
use crate::report::HotImage;
use crate::timeline::Timeline;
use std::collections::{BTreeMap, HashMap};

/// Rows per role.
const MOST: usize = 20;
/// Code whose image is not known (just-in-time compiled, or unmapped since).
const UNKNOWN: &str = "unknown code";

/// Samples by role and by image (the file's name) or, inside the kernel, by system call; largest share of its role first.
pub fn hot_images(timeline: &Timeline, roles: &Roles<'_>) -> Vec<HotImage> {
    let mut by_role: BTreeMap<&str, HashMap<(Syscall, ImageId), u64>> = BTreeMap::new();
    for (ix, line) in timeline.lines().filter(|(_, l)| !l.samples.is_empty()) {
        let counts = by_role.entry(roles(ix)).or_default();
        for s in &line.samples {
            // In the kernel it does not matter from which image the call was made.
            let key = if s.syscall.is_none() { (Syscall::NONE, s.image) } else { (s.syscall, ImageId(0)) };
            *counts.entry(key).or_default() += 1;
        }
    }
    let mut rows = Vec::new();
    for (role, counts) in by_role {
        let total: u64 = counts.values().sum();
        // Several versions of an image, or several unknown ones, can share a name.
        let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
        for ((syscall, image), n) in counts {
            *by_name.entry(name(timeline, syscall, image)).or_default() += n;
        }
        let mut by_name: Vec<(String, u64)> = by_name.into_iter().collect();
        by_name.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        by_name.truncate(MOST);
        rows.extend(by_name.into_iter().map(|(image, samples)| HotImage {
            role: role.to_owned(),
            image,
            share: samples as f64 / total.max(1) as f64,
            samples,
        }));
    }
    rows
}

fn name(timeline: &Timeline, syscall: Syscall, image: ImageId) -> String {
    if !syscall.is_none() {
        return syscalls::wait_name(syscall);
    }
    let path = timeline.images.get(&image).map_or("", String::as_str);
    match path.rsplit('/').next().unwrap_or_default() {
        "" => UNKNOWN.to_owned(),
        file => file.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;
    use crate::events::{Event, ImageName};

    #[test]
    fn samples_are_shared_out_by_role() {
        let image = |id, path: &str| Event::ImageName(ImageName { id: ImageId(id), path: path.into() });
        let rows = hot_images(
            &timeline([
                image(1, "/usr/lib/libjpeg.so.62"),
                image(2, "[vdso]"),
                sample(10, 1, -1, 1),
                sample(10, 2, -1, 1),
                sample(10, 3, 0, 1),
                sample(10, 4, -1, 0),
                sample(11, 5, -1, 2),
            ]),
            &|ix| if ix.0 == 0 { "worker" } else { "feeder" },
        );
        let seen: Vec<(&str, &str, f64, u64)> =
            rows.iter().map(|r| (&*r.role, &*r.image, r.share, r.samples)).collect();
        assert_eq!(
            seen,
            [
                ("feeder", "[vdso]", 1.0, 1),
                ("worker", "libjpeg.so.62", 0.5, 2),
                ("worker", "read", 0.25, 1),
                ("worker", "unknown code", 0.25, 1),
            ]
        );
    }
}
