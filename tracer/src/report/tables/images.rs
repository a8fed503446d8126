//! Where running threads spent their CPU time, from samples.

use crate::events::syscalls;
use crate::events::{ImageId, Syscall};
use crate::report::HotImage;
use crate::timeline::{Moment, Timeline};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Rows per role.
const MOST: usize = 20;
/// Code whose image is not known (just-in-time compiled, or unmapped since).
const UNKNOWN: &str = "unknown code";

/// Samples by role and by image or, inside the kernel, by system call.
#[derive(Debug, Default)]
pub(super) struct Samples {
    by_role: BTreeMap<&'static str, FxHashMap<(Syscall, ImageId), u64>>,
}

impl Samples {
    pub(super) fn add(&mut self, role: &'static str, samples: &[Moment]) {
        if samples.is_empty() {
            return;
        }
        let counts = self.by_role.entry(role).or_default();
        for s in samples {
            // In the kernel it does not matter from which image the call was made.
            let key = if s.syscall.is_none() { (Syscall::NONE, s.image) } else { (s.syscall, ImageId(0)) };
            *counts.entry(key).or_default() += 1;
        }
    }

    /// By the image's file name; largest share of its role first.
    pub(super) fn rows(&self, tl: &Timeline) -> Vec<HotImage> {
        let mut rows = Vec::new();
        for (role, counts) in &self.by_role {
            let total: u64 = counts.values().sum();
            // Several versions of an image, or several unknown ones, can share a name.
            let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
            for ((syscall, image), n) in counts {
                *by_name.entry(name(tl, *syscall, *image)).or_default() += n;
            }
            let mut by_name: Vec<(String, u64)> = by_name.into_iter().collect();
            by_name.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            by_name.truncate(MOST);
            rows.extend(by_name.into_iter().map(|(image, samples)| HotImage {
                role: (*role).to_owned(),
                image,
                share: samples as f64 / total.max(1) as f64,
                samples,
            }));
        }
        rows
    }
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
