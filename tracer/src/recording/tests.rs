//! Properties of writer and reader together: whatever goes in comes out, and whatever is whole survives.

use super::block::{BlockHeader, HEADER_LEN, PROLOGUE_LEN};
use super::encoder::BlockEncoder;
use super::{Batch, ClockReading, Cost, Damage, FORMAT_VERSION, Header, ReadError, Reader, Target, Trailer};
use crate::events::{
    BlockOp, BlockRequest, CpuSample, Event, FileOpen, FileRef, ImageId, Loss, LossKind, OffCpu, OpenOutcome,
    SleepState, Submitter, Syscall, Waker, Wakeup,
};
use crate::units::{DevId, MonoNs, Nanos, Pid, Tid};
use proptest::prelude::*;
use proptest::sample::select;
use std::io::Cursor;
use std::path::Path;

fn header() -> Header {
    Header {
        written_by: "test".to_owned(),
        started: ClockReading { mono: MonoNs(1_000), ..ClockReading::default() },
        host: "example".to_owned(),
        kernel: "6.18.0".to_owned(),
        cpus: 2,
        target: Target { pid: Pid(10), command: "python3 train.py".to_owned() },
        probes: Vec::new(),
        gpu_note: None,
        sample_hz: 250,
        opens: "off".to_owned(),
        mounts: Vec::new(),
        disks: Vec::new(),
        limits: Default::default(),
    }
}

fn trailer() -> Trailer {
    Trailer {
        ended: ClockReading { mono: MonoNs(9_000), ..ClockReading::default() },
        reason: "duration".to_owned(),
        command_status: Some(3),
        cost: Cost::default(),
    }
}

/// Few distinct values as well as any value, so that dictionaries and their absence are both tried.
fn id() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..4, any::<u32>(), Just(u32::MAX)]
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![1_000u64..3_000, any::<u64>(), Just(0), Just(u64::MAX)]
}

fn syscall() -> impl Strategy<Value = Syscall> {
    prop_oneof![select(vec![-1i16, 0, 202]), any::<i16>()].prop_map(Syscall)
}

fn dev() -> impl Strategy<Value = DevId> {
    (id(), id()).prop_map(|(major, minor)| DevId { major, minor })
}

fn file() -> impl Strategy<Value = Option<FileRef>> {
    prop::option::of((time(), dev(), dev(), id(), any::<u16>()).prop_map(|(ino, dev, rdev, magic, mode)| FileRef {
        ino,
        dev,
        rdev,
        magic,
        mode,
    }))
}

fn waker() -> impl Strategy<Value = Waker> {
    prop_oneof![
        (id(), id(), syscall()).prop_map(|(t, p, syscall)| Waker::Thread { tid: Tid(t), pid: Pid(p), syscall }),
        id().prop_map(|t| Waker::KernelThread { tid: Tid(t) }),
        Just(Waker::Interrupt),
    ]
}

fn off_cpu() -> impl Strategy<Value = OffCpu> {
    let states = vec![
        SleepState::Preempted,
        SleepState::Interruptible,
        SleepState::Uninterruptible,
        SleepState::New,
        SleepState::Other,
    ];
    let who = (id(), id(), id(), id(), prop_oneof![0u16..3, any::<u16>()]);
    let when = (time(), time(), prop::option::of((time(), any::<bool>(), waker())));
    let how = (select(states), any::<[bool; 3]>(), syscall(), time(), file());
    (who, when, how).prop_map(|(who, when, how)| {
        let (tid, pid, next, prev, cpu) = who;
        let (off, on, wakeup) = when;
        let (state, [iowait, seeded, pending], syscall, arg0, file) = how;
        OffCpu {
            tid: Tid(tid),
            pid: Pid(pid),
            cpu,
            off: MonoNs(off),
            wakeup: wakeup.map(|(at, early, by)| Wakeup { at: MonoNs(if early { off } else { at }), by }),
            on: MonoNs(on),
            state,
            iowait,
            syscall,
            arg0,
            file,
            next_tid: Tid(next),
            prev_tid: Tid(prev),
            seeded,
            pending,
        }
    })
}

fn sample() -> impl Strategy<Value = CpuSample> {
    (time(), id(), id(), any::<u16>(), syscall(), time(), id(), file()).prop_map(
        |(time, tid, pid, cpu, syscall, user_ip, image, file)| CpuSample {
            time: MonoNs(time),
            tid: Tid(tid),
            pid: Pid(pid),
            cpu,
            syscall,
            user_ip,
            image: ImageId(image),
            file,
        },
    )
}

fn request() -> impl Strategy<Value = BlockRequest> {
    let ops = vec![BlockOp::Read, BlockOp::Write, BlockOp::Flush, BlockOp::Discard, BlockOp::Other];
    let submitter = prop_oneof![
        (id(), id()).prop_map(|(t, p)| Submitter::Target { tid: Tid(t), pid: Pid(p) }),
        (id(), id()).prop_map(|(t, p)| Submitter::Other { tid: Tid(t), pid: Pid(p) }),
        id().prop_map(|t| Submitter::KernelThread { tid: Tid(t) }),
    ];
    let times = (prop::option::of(time()), time(), time());
    (dev(), select(ops), any::<u32>(), time(), times, submitter).prop_map(
        |(dev, op, bytes, sector, (start, issue, complete), submitter)| BlockRequest {
            dev,
            op,
            bytes,
            sector,
            start: start.map(MonoNs),
            issue: MonoNs(issue),
            complete: MonoNs(complete),
            submitter,
        },
    )
}

fn other() -> impl Strategy<Value = Event> {
    prop_oneof![
        (time(), id(), any::<String>(), prop::option::of((time(), any::<i32>()))).prop_map(
            |(t, tid, path, outcome)| {
                Event::Open(FileOpen {
                    time: MonoNs(t),
                    tid: Tid(tid),
                    pid: Pid(tid),
                    syscall: Syscall(257),
                    path,
                    outcome: outcome.map(|(l, result)| OpenOutcome { latency: Nanos(l), result, flags: 7 }),
                })
            }
        ),
        (time(), any::<u64>())
            .prop_map(|(t, count)| { Event::Loss(Loss { time: MonoNs(t), kind: LossKind::StateFull, count }) }),
    ]
}

fn batch() -> impl Strategy<Value = Batch> {
    prop_oneof![
        prop::collection::vec(off_cpu(), 1..60).prop_map(Batch::OffCpu),
        prop::collection::vec(sample(), 1..60).prop_map(Batch::CpuSample),
        prop::collection::vec(request(), 1..60).prop_map(Batch::Block),
        prop::collection::vec(other(), 1..20).prop_map(Batch::Other),
    ]
}

/// A recording of these batches, and where each of its blocks lies: header, batches, trailer.
fn recording(batches: &[Batch]) -> (Vec<u8>, Vec<std::ops::Range<usize>>) {
    recording_of(&header(), batches)
}

fn recording_of(header: &Header, batches: &[Batch]) -> (Vec<u8>, Vec<std::ops::Range<usize>>) {
    let (mut encoder, mut bytes) = BlockEncoder::begin(header).unwrap().unwrap();
    let mut ends = vec![PROLOGUE_LEN, bytes.len()];
    for batch in batches.iter().chain([&Batch::Trailer(trailer())]) {
        encoder.encode(batch, &mut bytes);
        ends.push(bytes.len());
    }
    let blocks = ends.windows(2).map(|edge| edge[0]..edge[1]).collect();
    (bytes, blocks)
}

fn read(bytes: Vec<u8>) -> Result<(Vec<Batch>, Damage), ReadError> {
    let mut reader = Reader::over(Box::new(Cursor::new(bytes)), Path::new("test.gpustall"))?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch() {
        batches.push(batch);
    }
    Ok((batches, reader.damage().clone()))
}

/// One way to damage a file.
#[derive(Clone, Debug)]
enum Harm {
    Flip { at: usize, bit: u8 },
    Cut { at: usize },
    Remove { at: usize, len: usize },
    Insert { at: usize, bytes: Vec<u8> },
    Repeat { from: usize, len: usize, at: usize },
    Zero { at: usize, len: usize },
}

fn harm() -> impl Strategy<Value = Harm> {
    let at = any::<usize>();
    prop_oneof![
        (at, 0u8..8).prop_map(|(at, bit)| Harm::Flip { at, bit }),
        at.prop_map(|at| Harm::Cut { at }),
        (at, 1usize..300).prop_map(|(at, len)| Harm::Remove { at, len }),
        (at, prop::collection::vec(any::<u8>(), 1..300)).prop_map(|(at, bytes)| Harm::Insert { at, bytes }),
        (at, 1usize..2_000, any::<usize>()).prop_map(|(from, len, at)| Harm::Repeat { from, len, at }),
        (at, 1usize..600).prop_map(|(at, len)| Harm::Zero { at, len }),
    ]
}

/// Applies the harm; `origin` says for each byte where it was in the undamaged file.
fn apply(harm: &Harm, bytes: &mut Vec<u8>, origin: &mut Vec<Option<usize>>) {
    let len = bytes.len();
    if len == 0 {
        return;
    }
    match *harm {
        Harm::Flip { at, bit } => {
            bytes[at % len] ^= 1 << bit;
            origin[at % len] = None;
        }
        Harm::Cut { at } => {
            bytes.truncate(at % len);
            origin.truncate(at % len);
        }
        Harm::Remove { at, len: n } => {
            let range = at % len..(at % len + n).min(len);
            bytes.drain(range.clone());
            origin.drain(range);
        }
        Harm::Insert { at, bytes: ref new } => {
            bytes.splice(at % len..at % len, new.iter().copied());
            origin.splice(at % len..at % len, new.iter().map(|_| None));
        }
        Harm::Repeat { from, len: n, at } => {
            // Only to a later place: an earlier copy would be the original, as far as any reader can tell.
            let range = from % len..(from % len + n).min(len);
            let at = range.end + at % (len - range.end + 1);
            let copy = bytes[range].to_vec();
            origin.splice(at..at, copy.iter().map(|_| None));
            bytes.splice(at..at, copy);
        }
        Harm::Zero { at, len: n } => {
            for i in at % len..(at % len + n).min(len) {
                if bytes[i] != 0 {
                    origin[i] = None;
                }
                bytes[i] = 0;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_goes_in_comes_out(batches in prop::collection::vec(batch(), 0..6)) {
        let (bytes, _) = recording(&batches);
        let (got, damage) = read(bytes).unwrap();
        let mut expected = batches;
        expected.push(Batch::Trailer(trailer()));
        prop_assert_eq!(got, expected);
        prop_assert!(damage.is_none(), "{:?}", damage);
    }

    #[test]
    fn whole_blocks_survive_any_damage(
        batches in prop::collection::vec(batch(), 1..6),
        harms in prop::collection::vec(harm(), 1..4),
    ) {
        let (mut bytes, blocks) = recording(&batches);
        let whole = bytes.clone();
        let mut origin: Vec<Option<usize>> = (0..bytes.len()).map(Some).collect();
        for harm in &harms {
            apply(harm, &mut bytes, &mut origin);
        }
        // A block is whole if its bytes are still there, in order and next to each other.
        let is_whole = |block: &std::ops::Range<usize>| {
            origin.iter().position(|&o| o == Some(block.start)).is_some_and(|at| {
                origin.get(at..at + block.len()).is_some_and(|o| o.iter().copied().eq(block.clone().map(Some)))
            })
        };
        let alive: Vec<bool> = blocks.iter().map(is_whole).collect();
        let same = bytes == whole;
        let beginning = bytes.starts_with(&whole[..blocks[0].end]);
        match read(bytes) {
            // Only damage up to the end of the header block keeps a recording from being opened.
            Err(_) => prop_assert!(!beginning),
            Ok((got, damage)) => {
                let mut all: Vec<Batch> = batches;
                all.push(Batch::Trailer(trailer()));
                let expected: Vec<Batch> =
                    all.iter().zip(&alive[1..]).filter(|&(_, &alive)| alive).map(|(b, _)| b.clone()).collect();
                // A repeated copy of a damaged block also counts as that block.
                let mut rest = got.iter();
                for batch in &expected {
                    prop_assert!(rest.any(|b| b == batch), "lost a whole block");
                }
                prop_assert!(got.iter().all(|b| all.contains(b)), "a batch that was never written");
                prop_assert_eq!(same, damage.is_none(), "{:?}", damage);
                if !damage.is_none() {
                    prop_assert!(!damage.sentences().is_empty());
                }
            }
        }
    }

    #[test]
    fn arbitrary_content_never_panics_even_with_right_checksums(
        family in 0u8..7,
        count in prop_oneof![0u32..100, any::<u32>()],
        content in prop::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..400),
        first in any::<u64>(),
    ) {
        let (mut bytes, _) = recording(&[]);
        let own = BlockHeader::read(&bytes[PROLOGUE_LEN..]).unwrap();
        bytes.truncate(PROLOGUE_LEN + HEADER_LEN + own.stored_len as usize);
        let header = BlockHeader {
            family,
            codec: 0,
            sequence: 1,
            count,
            raw_len: content.len() as u32,
            stored_len: content.len() as u32,
            first,
            payload_crc: crc32fast::hash(&content),
            ..own
        };
        header.write(&mut bytes);
        bytes.extend_from_slice(&content);
        let (_, damage) = read(bytes).unwrap();
        prop_assert_eq!(damage.lost_blocks, 0);
    }

    #[test]
    fn arbitrary_changes_of_a_content_never_panic(
        batch in batch(),
        harms in prop::collection::vec(harm(), 1..3),
    ) {
        // The damage is inside the content, and the checksums are made right again.
        let (bytes, blocks) = recording(&[batch]);
        let block = BlockHeader::read(&bytes[blocks[1].start..]).unwrap();
        let stored = &bytes[blocks[1].start + HEADER_LEN..blocks[1].end];
        let mut expander = super::compress::Expander::new().unwrap();
        let mut raw = expander.expand(block.codec, stored, block.raw_len as usize).unwrap().to_vec();
        let mut origin = vec![None; raw.len()];
        for harm in &harms {
            apply(harm, &mut raw, &mut origin);
        }
        let mut changed = bytes[..blocks[0].end].to_vec();
        let len = raw.len() as u32;
        BlockHeader { codec: 0, raw_len: len, stored_len: len, payload_crc: crc32fast::hash(&raw), ..block }
            .write(&mut changed);
        changed.extend_from_slice(&raw);
        changed.extend_from_slice(&bytes[blocks[2].clone()]);
        let (got, damage) = read(changed).unwrap();
        prop_assert_eq!(got.last(), Some(&Batch::Trailer(trailer())));
        prop_assert!(damage.lost_blocks == 0 && !damage.missing_trailer);
    }

    #[test]
    fn arbitrary_files_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(read(bytes).is_err());
    }
}

fn loss(count: u64) -> Batch {
    Batch::Other(vec![Event::Loss(Loss { time: MonoNs(count), kind: LossKind::Block, count })])
}

#[test]
fn blocks_of_later_versions_are_skipped_and_counted() {
    let (mut bytes, blocks) = recording(&[loss(1), loss(2), loss(3)]);
    for (block, change) in [(1, (200, 1)), (2, (2, 9))] {
        let start = blocks[block].start;
        let own = BlockHeader::read(&bytes[start..]).unwrap();
        let mut changed = Vec::new();
        BlockHeader { family: change.0, layout: change.1, ..own }.write(&mut changed);
        bytes[start..start + HEADER_LEN].copy_from_slice(&changed);
    }
    let (got, damage) = read(bytes).unwrap();
    assert_eq!(got, [loss(3), Batch::Trailer(trailer())]);
    assert_eq!(damage, Damage { unknown_blocks: 2, ..Damage::default() });
    assert!(damage.is_none());
}

#[test]
fn a_second_recording_in_the_same_file_is_not_mixed_in() {
    let (first, blocks) = recording(&[loss(1), loss(2)]);
    let (second, _) = recording_of(&Header { host: "another".to_owned(), ..header() }, &[loss(7)]);
    let whole = [first.clone(), second.clone()].concat();
    let (got, damage) = read(whole).unwrap();
    assert_eq!(got, [loss(1), loss(2), Batch::Trailer(trailer())]);
    assert_eq!(damage, Damage { bytes_after_end: second.len() as u64, ..Damage::default() });

    // The first one lost its end.
    let cut = [&first[..blocks[2].start + 5], &second[..]].concat();
    let (got, damage) = read(cut).unwrap();
    assert_eq!(got, [loss(1)]);
    assert_eq!((damage.stray_blocks, damage.missing_trailer), (3, true));
}

#[test]
fn the_missing_are_counted_by_their_numbers() {
    let (bytes, blocks) = recording(&[loss(1), loss(2), loss(3), loss(4)]);
    let without = [&bytes[..blocks[2].start], &bytes[blocks[3].end..]].concat();
    let (got, damage) = read(without).unwrap();
    assert_eq!(got, [loss(1), loss(4), Batch::Trailer(trailer())]);
    assert_eq!(damage, Damage { lost_blocks: 2, ..Damage::default() });
}

#[test]
fn a_damaged_prologue_alone_does_no_harm() {
    for byte in 0..PROLOGUE_LEN {
        let (mut bytes, _) = recording(&[loss(1)]);
        bytes[byte] ^= 0x10;
        let (got, damage) = read(bytes).unwrap();
        assert_eq!(got.len(), 2);
        assert_eq!(damage, Damage { prologue: true, ..Damage::default() }, "byte {byte}");
    }
}

#[test]
fn false_blocks_inside_false_blocks_are_not_checked_without_end() {
    // Each header claims a 4 MiB payload that holds all the headers after it. Checked one by one, the 20,000 of them
    // would need 80 GB of checksums.
    let (mut bytes, _) = recording(&[loss(1)]);
    let own = BlockHeader::read(&bytes[PROLOGUE_LEN..]).unwrap();
    for sequence in 2..20_000 {
        BlockHeader { sequence, raw_len: 4 << 20, stored_len: 4 << 20, payload_crc: 1, ..own }.write(&mut bytes);
    }
    bytes.resize(bytes.len() + (6 << 20), 0);
    let mut scanner = super::scan::Scanner::new(Box::new(Cursor::new(bytes[PROLOGUE_LEN..].to_vec())));
    let mut blocks = 0;
    while scanner.next_block().is_some() {
        blocks += 1;
    }
    assert_eq!(blocks, 3);
    assert!(scanner.wasted_bytes() < 600 << 20, "{}", scanner.wasted_bytes());
}

#[test]
fn a_later_format_is_named() {
    let (mut bytes, _) = recording(&[]);
    bytes[8..12].copy_from_slice(&7u32.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..12]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    let error = read(bytes).unwrap_err();
    assert_eq!(error, ReadError::Newer { path: "test.gpustall".into(), found: 7, known: FORMAT_VERSION });
}
