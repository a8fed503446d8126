//! Between threads, processes and machines: pinning, handing over, peers, and what is not known.

use crate::attribution::{Cause, Totals};
use crate::diagnosis::facts::Facts;

/// Advice where batches were copied to pinned memory.
pub fn pin_memory() -> Vec<String> {
    vec![
        "Make batches smaller in bytes (uint8 images, normalised on the GPU), so that there is less to copy to pinned memory.".into(),
        "Collate into one tensor for each field: every small tensor is copied and pinned on its own.".into(),
    ]
}

/// Advice where batches were handed from process to process.
pub fn ipc(by_threads: bool) -> Vec<String> {
    if by_threads {
        return vec!["Hand over references in place of copies between the threads, and larger batches.".into()];
    }
    vec![
        "Send less between processes: uint8 instead of float32, and larger batches.".into(),
        "Return tensors, not NumPy arrays, lists or objects: tensors go through shared memory, all else is pickled and copied through a pipe.".into(),
    ]
}

/// Who ended waits from outside the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Name of the thread.
    pub name: String,
    /// Its id.
    pub tid: u32,
    /// Its process and the command line of that, where they are known.
    pub process: Option<(u32, String)>,
}

impl Peer {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals, cause: Cause) -> Option<Peer> {
        let (tid, _) = *f.outsiders(totals, cause).first()?;
        let process = f.tl.outsiders.get(&tid).filter(|o| !o.command.is_empty());
        Some(Peer {
            name: f.tl.name_of(tid, f.tl.span.1).unwrap_or("unknown").to_owned(),
            tid: tid.0,
            process: process.map(|o| (o.pid.0, o.command.clone())),
        })
    }

    fn words(&self) -> String {
        match &self.process {
            Some((pid, command)) => format!("{} (thread {} of process {pid}: {command})", self.name, self.tid),
            None => format!("{} (thread {})", self.name, self.tid),
        }
    }
}

/// Advice where threads waited for a socket.
pub fn network(peer: Option<&Peer>) -> Vec<String> {
    let mut out = vec![match peer {
        Some(peer) => format!(
            "See what the other end of the connection does, which is on this machine: {}. Recording it as well tells why it is slow (--pid).",
            peer.words()
        ),
        None => {
            "See what the other end of the connection does, which is on another machine (ss -tnp shows which).".into()
        }
    }];
    out.push("If it only has latency, ask for the next samples before they are needed: a larger prefetch_factor, several requests at once, or larger requests.".into());
    out
}

/// Advice where threads waited for a process outside the job.
pub fn other_process(peer: Option<&Peer>) -> Vec<String> {
    vec![match peer {
        Some(peer) => format!(
            "Look at what the job waited for: {}. Recording that process tells what holds it up (--pid).",
            peer.words()
        ),
        None => "Look at the process that the job waited for; its name was not recorded.".into(),
    }]
}

/// Why nothing is known.
#[derive(Clone, Debug, Default)]
pub struct Unrecorded {
    /// Events were lost.
    pub lost: u64,
    /// Samples of running threads were taken.
    pub sampled: bool,
}

impl Unrecorded {
    pub(super) fn of(f: &Facts<'_>) -> Unrecorded {
        Unrecorded { lost: f.tl.lost().values().sum(), sampled: f.header.sample_hz > 0 }
    }
}

/// Advice where nothing is known.
pub fn unknown(u: &Unrecorded) -> Vec<String> {
    let mut out = Vec::new();
    if u.lost > 0 {
        out.push(format!("Record again: {} events were lost, so that some waits have no record. Give the recorder a CPU with less to do.", u.lost));
    } else {
        out.push("Record again with the job's main process as target, as root, and without lost events.".into());
    }
    if !u.sampled {
        out.push("Leave sampling on: without it nothing is known of running threads.".into());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_on_this_machine_is_named() {
        let peer = Peer { name: "python3".into(), tid: 42, process: Some((40, "python3 serve.py".into())) };
        let told = network(Some(&peer)).join("\n");
        assert!(
            told.contains("python3 (thread 42 of process 40: python3 serve.py)") && told.contains("prefetch_factor"),
            "{told}"
        );
        assert!(network(None).join("\n").contains("another machine"));
        assert!(other_process(Some(&Peer { process: None, ..peer })).join("\n").contains("python3 (thread 42)."));
    }

    #[test]
    fn what_is_unknown_is_recorded_again_as_it_must_be() {
        assert!(unknown(&Unrecorded { lost: 12, sampled: true }).join("\n").contains("12 events were lost"));
        let told = unknown(&Unrecorded { lost: 0, sampled: false }).join("\n");
        assert!(told.contains("as root") && told.contains("Leave sampling on"), "{told}");
    }

    #[test]
    fn threads_do_not_pickle() {
        assert!(!ipc(true).join("\n").contains("pickled"));
        assert!(ipc(false).join("\n").contains("pickled"));
    }
}
