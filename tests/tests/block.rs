//! Block requests: exactly those that were made, with the right device, place, length, submitter and order of times.

use anyhow::Result;
use gpustall::events::{BlockOp, BlockRequest, Event, Submitter};
use gpustall::units::Tid;
use gpustall_tests::loopdev::{LoopDevice, Mounted};
use gpustall_tests::traced::{Traced, traced};

const WORKLOAD: &str = env!("CARGO_BIN_EXE_io-workload");

fn requests(t: &Traced, device: &LoopDevice, op: BlockOp) -> Result<Vec<BlockRequest>> {
    let dev = device.dev()?;
    let blocks = t.events.iter().filter_map(|e| if let Event::Block(b) = e { Some(*b) } else { None });
    Ok(blocks.filter(|b| b.dev == dev && b.op == op).collect())
}

fn times_are_in_order(b: &BlockRequest) -> bool {
    b.start.is_some_and(|s| s <= b.issue) && b.issue < b.complete
}

#[test]
fn direct_reads_and_writes_are_seen_one_by_one() -> Result<()> {
    let device = LoopDevice::new(64 << 20)?;
    for (what, op) in [("direct-read", BlockOp::Read), ("direct-write", BlockOp::Write)] {
        let t = traced(WORKLOAD, &[what, device.path(), "40", "16384"], |_| {})?;
        for program in ["block_rq_issue", "block_rq_complete"] {
            t.attached(program)?;
        }
        let all = requests(&t, &device, op)?;
        let mine: Vec<_> = all.iter().filter(|b| matches!(b.submitter, Submitter::Target { .. })).collect();
        assert_eq!(mine.len(), 40, "{all:#?}");
        for (i, b) in mine.iter().enumerate() {
            assert_eq!((b.sector, b.bytes), ((i as u64) << 11, 16384));
            assert_eq!(b.submitter, Submitter::Target { tid: Tid(t.fact("tid")? as u32), pid: t.pid });
            assert!(times_are_in_order(b), "{b:?}");
        }
    }
    Ok(())
}

#[test]
fn requests_of_other_processes_are_recorded_as_theirs() -> Result<()> {
    let device = LoopDevice::new(16 << 20)?;
    // The reader is not the target: it is a child of the test that nobody follows.
    let mut reader = std::process::Command::new("dd");
    reader.args(["of=/dev/null", "bs=64k", "count=8", "iflag=direct"]).arg(format!("if={}", device.path()));
    let t = {
        let background = std::thread::spawn(move || {
            // The target spins for a second; the reader starts well after the attach and ends well before that.
            std::thread::sleep(std::time::Duration::from_millis(400));
            gpustall_tests::loopdev::run(&mut reader)
        });
        let t = traced(WORKLOAD, &["spin", "1500"], |_| {})?;
        background.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        t
    };
    let reads = requests(&t, &device, BlockOp::Read)?;
    let others = reads.iter().filter(|b| matches!(b.submitter, Submitter::Other { .. }) && b.bytes == 65536);
    assert_eq!(others.count(), 8, "{reads:#?}");
    assert!(!reads.iter().any(|b| matches!(b.submitter, Submitter::Target { .. })));
    Ok(())
}

#[test]
fn kernel_threads_are_their_own_class() -> Result<()> {
    let disk = Mounted::new(64 << 20)?;
    let file = disk.path().join("checkpoint");
    let t = traced(WORKLOAD, &["write-fsync", &file.to_string_lossy(), "1048576"], |_| {})?;
    let writes = requests(&t, disk.device(), BlockOp::Write)?;
    // fsync makes the caller write the data; the journal's own thread writes the journal.
    let by =
        |f: fn(&Submitter) -> bool| writes.iter().filter(|b| f(&b.submitter)).map(|b| u64::from(b.bytes)).sum::<u64>();
    assert!(by(|s| matches!(s, Submitter::Target { .. })) >= 1 << 20, "{writes:#?}");
    assert!(by(|s| matches!(s, Submitter::KernelThread { .. })) >= 4096, "{writes:#?}");
    assert_eq!(by(|s| matches!(s, Submitter::Other { .. })), 0, "{writes:#?}");
    for b in &writes {
        assert!(b.issue <= b.complete, "{b:?}");
    }
    Ok(())
}
