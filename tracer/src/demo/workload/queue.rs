//! The queues between main and its workers: small messages through pipes, batches through shared memory, as
//! PyTorch's DataLoader does it.

use super::super::error::DemoError;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

/// Main wants a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which.
    pub batch: u64,
}

/// A worker has made a batch and left it in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Which.
    pub batch: u64,
    /// CRC-32 of its bytes.
    pub crc: u32,
}

impl Order {
    /// Sends it.
    pub fn send(self, mut pipe: impl Write) -> Result<(), DemoError> {
        pipe.write_all(&self.batch.to_le_bytes()).and_then(|()| pipe.flush()).map_err(broken("of orders"))
    }

    /// Waits for the next; `None` when main has closed the queue.
    pub fn receive(mut pipe: impl Read) -> Result<Option<Order>, DemoError> {
        let mut bytes = [0; 8];
        match pipe.read_exact(&mut bytes) {
            Ok(()) => Ok(Some(Order { batch: u64::from_le_bytes(bytes) })),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(broken("of orders")(e)),
        }
    }
}

impl Done {
    /// Sends it.
    pub fn send(self, mut pipe: impl Write) -> Result<(), DemoError> {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.batch.to_le_bytes());
        bytes[8..].copy_from_slice(&self.crc.to_le_bytes());
        pipe.write_all(&bytes).and_then(|()| pipe.flush()).map_err(broken("of results"))
    }

    /// Waits for the next.
    pub fn receive(mut pipe: impl Read) -> Result<Done, DemoError> {
        let (mut batch, mut crc) = ([0; 8], [0; 4]);
        pipe.read_exact(&mut batch).and_then(|()| pipe.read_exact(&mut crc)).map_err(broken("of results"))?;
        Ok(Done { batch: u64::from_le_bytes(batch), crc: u32::from_le_bytes(crc) })
    }
}

fn broken(queue: &'static str) -> impl FnOnce(io::Error) -> DemoError {
    move |source| DemoError::Queue { queue, source }
}

/// Memory that a worker shares with main, one slot per batch that may be under way.
pub struct Slots {
    memory: File,
    slot_bytes: usize,
}

impl Slots {
    /// New memory, on main's side.
    pub fn create(slots: usize, slot_bytes: usize) -> Result<Slots, DemoError> {
        let fd = memfd_create(c"demo-batches", MemfdFlags::CLOEXEC).map_err(DemoError::system("make shared memory"))?;
        let memory = File::from(fd);
        memory.set_len((slots * slot_bytes) as u64).map_err(DemoError::system("size the shared memory"))?;
        Ok(Slots { memory, slot_bytes })
    }

    /// What main has under `descriptor`, on a worker's side.
    pub fn open(main: i32, descriptor: RawFd, slot_bytes: usize) -> Result<Slots, DemoError> {
        let path = format!("/proc/{main}/fd/{descriptor}");
        let memory = File::options().read(true).write(true).open(path);
        Ok(Slots { memory: memory.map_err(DemoError::system("open the shared memory of main"))?, slot_bytes })
    }

    /// Main's descriptor.
    pub fn descriptor(&self) -> RawFd {
        self.memory.as_raw_fd()
    }

    /// Leaves a batch.
    pub fn put(&self, slot: usize, batch: &[u8]) -> Result<(), DemoError> {
        let at = (slot * self.slot_bytes) as u64;
        self.memory.write_all_at(batch, at).map_err(DemoError::system("write to the shared memory"))
    }

    /// Takes a batch.
    pub fn take(&self, slot: usize, into: &mut [u8]) -> Result<(), DemoError> {
        let at = (slot * self.slot_bytes) as u64;
        self.memory.read_exact_at(into, at).map_err(DemoError::system("read the shared memory"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_sent_and_a_closed_queue_is_told_from_a_broken_one() {
        let mut pipe = Vec::new();
        Order { batch: 1 << 40 }.send(&mut pipe).unwrap();
        let mut reader = pipe.as_slice();
        assert_eq!(Order::receive(&mut reader).unwrap(), Some(Order { batch: 1 << 40 }));
        assert_eq!(Order::receive(&mut reader).unwrap(), None);

        let mut pipe = Vec::new();
        let done = Done { batch: 3, crc: 0xdead_beef };
        done.send(&mut pipe).unwrap();
        assert_eq!(Done::receive(pipe.as_slice()).unwrap(), done);
        assert!(Done::receive(&pipe[..5]).is_err());
    }

    #[test]
    fn both_sides_see_the_same_slots() {
        let main = Slots::create(2, 4096).unwrap();
        let worker = Slots::open(std::process::id() as i32, main.descriptor(), 4096).unwrap();
        worker.put(1, &[9; 4096]).unwrap();
        let mut taken = vec![0; 4096];
        main.take(1, &mut taken).unwrap();
        assert_eq!(taken, vec![9; 4096]);
        main.take(0, &mut taken).unwrap();
        assert_eq!(taken, vec![0; 4096]);
    }
}
