//! Preprocessing: more workers where there is room, even work, cheaper samples.

use super::Pace;
use super::room::Room;
use crate::attribution::{Role, Totals};
use crate::diagnosis::facts::Facts;
use crate::diagnosis::words::percent;

/// From this share of a role's CPU time on, a library is where it goes.
const HOT: f64 = 0.3;

/// Workers, or the feeder of a job without, prepared data.
#[derive(Clone, Debug, Default)]
pub struct Preparing {
    /// Whether more workers would help.
    pub room: Room,
    /// Workers are threads of the training process.
    pub threads: bool,
    /// The worker that was waited for most, and its share of the waits.
    pub slowest: Option<(u32, f64)>,
    /// Where its CPU time went: library and share.
    pub hot: Option<(String, f64)>,
}

impl Preparing {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals, pace: Pace) -> Preparing {
        let room = Room::of(f, totals, pace);
        let role = if room.workers == 0 { Role::Feeder } else { Role::Worker };
        Preparing {
            room,
            threads: f.workers_are_threads(),
            slowest: f.slowest_worker(totals).map(|(tid, share)| (tid.0, share)),
            hot: f.hot_images(role).into_iter().next().filter(|(_, share)| *share >= HOT),
        }
    }

    /// One of several workers holds up the rest: half-way between its fair share and all.
    fn one_is_slow(&self) -> Option<(u32, f64)> {
        let n = self.room.workers as f64;
        self.slowest.filter(|(_, share)| n >= 2.0 && *share >= (1.0 / n).midpoint(1.0))
    }
}

/// Advice for [`Preparing`].
pub fn preprocessing(p: &Preparing) -> Vec<String> {
    let mut out = Vec::new();
    let Room { workers: n, free, allowed, .. } = p.room;
    let free_words = free.map_or(String::new(), |free| format!("{free:.1} CPUs were free"));
    let more = p.room.more();
    if let Some((tid, share)) = p.one_is_slow() {
        out.push(format!(
            "Even out the work of the workers: worker {tid} alone held up the GPU in {} of the waits for all {n}. Spread costly samples over the batches, or take batches as they are ready (in_order=False in newer PyTorch).",
            percent(share)
        ));
    } else if let Some(more) = more {
        let to = n + more;
        let why = format!("{free_words} and the disk was not the limit");
        out.push(match n {
            0 => format!("Load data in workers (num_workers={more}): {free_words}."),
            _ if p.threads => format!("Raise the number of worker threads (num_parallel_calls, num_threads) from {n} to {to}: {why}. Threads that run Python code share one lock; for these use processes."),
            _ => format!("Raise num_workers from {n} to {to}: {why}."),
        });
    } else if p.room.storage_limits() {
        out.push(format!(
            "Mend storage first: {} of the idle time went by in waits for it, so that more workers would not help.",
            percent(p.room.on_storage)
        ));
    } else if let Some(free) = free {
        out.push(format!(
            "Only {free:.1} of the {allowed:.1} CPUs that the job may use were free, so more workers would not help: make the work cheaper."
        ));
    } else {
        out.push("Whether CPUs were free was not recorded, so whether more workers would help is not known; make the work cheaper.".into());
    }
    out.push(cheaper(p.hot.as_ref()));
    out
}

/// How to make a sample cheaper, by the library that most of the CPU time goes to.
fn cheaper(hot: Option<&(String, f64)>) -> String {
    let (all, tip) = match hot.map(|(image, _)| image.as_str()) {
        Some(i) if i.contains("jpeg") => {
            ("", "decode JPEG with libjpeg-turbo or on the GPU (nvJPEG, DALI), or store images at training size")
        }
        Some(i)
            if i.contains("libpng")
                || i.starts_with("libz.")
                || i.contains("zlib")
                || i.contains("lzma")
                || i.contains("zstd") =>
        {
            ("", "store the data uncompressed or with a faster codec (LZ4), since unpacking takes most of the time")
        }
        Some(i) if i.contains("avcodec") || i.contains("swscale") => {
            ("", "decode video on the GPU (NVDEC, DALI), or store frames at training size")
        }
        Some(i) if i.starts_with("python") || i.starts_with("libpython") => (
            "",
            "most of the time is Python code: do whole arrays at once (NumPy, torch) in place of loops, or cache what it makes",
        ),
        Some(i)
            if i.contains("torch")
                || i.contains("multiarray")
                || i.contains("opencv")
                || i.starts_with("cv2")
                || i.contains("imaging") =>
        {
            (
                "",
                "move these array operations to the GPU, on whole batches (DALI, Kornia, torchvision.transforms.v2), or cache their results",
            )
        }
        _ => (
            "store images at training size, decode with a faster library (libjpeg-turbo, nvJPEG), move augmentation to the GPU (DALI, Kornia), or cache decoded samples",
            "",
        ),
    };
    match hot {
        Some((image, share)) if all.is_empty() => {
            format!("Make a sample cheaper: {tip} ({image} had {} of the CPU time).", percent(*share))
        }
        _ => format!("Make a sample cheaper: {all}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preparing() -> Preparing {
        let room = Room { workers: 2, free: Some(6.0), allowed: 8.0, on_storage: 0.0, enough: None };
        Preparing { room, ..Preparing::default() }
    }

    #[test]
    fn workers_are_proposed_by_what_there_is() {
        let told = |p: &Preparing| preprocessing(p).remove(0);
        assert!(told(&preparing()).contains("num_workers from 2 to 8"));
        assert!(
            told(&Preparing { threads: true, ..preparing() })
                .contains("worker threads (num_parallel_calls, num_threads) from 2 to 8")
        );
        let room = preparing().room;
        let storage = Preparing { room: Room { on_storage: 0.3, ..room }, ..preparing() };
        assert!(told(&storage).contains("Mend storage first: 30 %"));
        let unknown = Preparing { room: Room { free: None, ..room }, ..preparing() };
        assert!(told(&unknown).contains("was not recorded"));
        let alone = Preparing { room: Room { workers: 0, enough: Some(2), ..room }, ..preparing() };
        assert!(told(&alone).contains("num_workers=2"));
    }

    #[test]
    fn one_slow_worker_is_not_mended_by_more() {
        let told = preprocessing(&Preparing { slowest: Some((4711, 0.95)), ..preparing() }).join("\n");
        assert!(told.contains("worker 4711 alone held up the GPU in 95 %") && !told.contains("Raise"), "{told}");
        let fair = preprocessing(&Preparing { slowest: Some((4711, 0.55)), ..preparing() }).join("\n");
        assert!(fair.contains("Raise"), "{fair}");
    }

    #[test]
    fn the_hot_library_decides_how_a_sample_gets_cheaper() {
        for (image, tip) in [
            ("libjpeg.so.62.3.0", "nvJPEG"),
            ("libz.so.1.2.13", "uncompressed"),
            ("python3.11", "Python code"),
            ("_imaging.cpython-311-x86_64-linux-gnu.so", "on whole batches"),
            ("libavcodec.so.59", "NVDEC"),
            ("libunheard-of.so", "cache decoded samples"),
        ] {
            let told = cheaper(Some(&(image.to_owned(), 0.6)));
            assert!(told.contains(tip), "{image}: {told}");
        }
        assert!(cheaper(None).contains("cache decoded samples"));
    }
}
