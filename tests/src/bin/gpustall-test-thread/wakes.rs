//! Wakes through sockets, eventfd, poll and epoll.

use crate::{Done, new_pipe, ready, say, tid, until_asleep};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

/// Waits by poll and epoll: until the time is up, and, with and without a limit, until a byte comes.
pub fn polls() -> Done {
    let (mut out, mut into) = new_pipe()?;
    // SAFETY: no preconditions; the descriptor is ours.
    let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: valid descriptors and a live structure.
    if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, out.as_raw_fd(), &raw mut event) } != 0 {
        return Err(io::Error::last_os_error());
    }
    ready()?;
    let mut wait = |byte: bool, by_poll: bool, limit: i32| -> Done {
        let writer = byte.then(|| into.try_clone()).transpose()?.map(|mut pipe| {
            thread::spawn(move || {
                thread::sleep(Duration::from_millis(30));
                pipe.write_all(b"x")
            })
        });
        let mut entry = libc::pollfd { fd: out.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: live structures, with room for the one answer.
        unsafe {
            if by_poll {
                libc::poll(&raw mut entry, 1, limit);
            } else {
                libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, limit);
            }
        }
        match writer {
            Some(writer) => {
                writer.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
                out.read_exact(&mut [0])
            }
            None => Ok(()),
        }
    };
    for by_poll in [true, false] {
        wait(false, by_poll, 20)?;
        wait(true, by_poll, 500)?;
        wait(true, by_poll, -1)?;
    }
    into.flush()
}

/// One thread answers another over TCP, when that one waits.
pub fn loopback() -> Done {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let main = tid();
    let server = thread::spawn(move || -> io::Result<u32> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut byte = [0];
        while stream.read(&mut byte)? == 1 {
            until_asleep(main);
            stream.write_all(&byte)?;
        }
        Ok(tid())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    ready()?;
    let mut byte = [0];
    for _ in 0..20 {
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
    }
    drop(stream);
    let server = server.join().unwrap_or(Ok(0))?;
    say("server", &[u64::from(server)]);
    Ok(())
}

/// Another thread answers over a unix socket, each time once this one sleeps.
pub fn unix() -> Done {
    let (mut near, mut far) = UnixStream::pair()?;
    let main = tid();
    let server = thread::spawn(move || -> io::Result<u32> {
        let mut byte = [0];
        while far.read(&mut byte)? == 1 {
            until_asleep(main);
            far.write_all(&byte)?;
        }
        Ok(tid())
    });
    ready()?;
    let mut byte = [0];
    for _ in 0..20 {
        near.write_all(&byte)?;
        near.read_exact(&mut byte)?;
    }
    drop(near);
    say("server", &[u64::from(server.join().unwrap_or(Ok(0))?)]);
    Ok(())
}

/// Another thread signals an eventfd that this one waits for in epoll, each time once this one sleeps.
pub fn eventfd() -> Done {
    // SAFETY: no preconditions; descriptors that are returned are ours.
    let (event, epoll) = unsafe {
        let event = libc::eventfd(0, libc::EFD_CLOEXEC);
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        if event < 0 || epoll < 0 {
            return Err(io::Error::last_os_error());
        }
        (File::from(OwnedFd::from_raw_fd(event)), OwnedFd::from_raw_fd(epoll))
    };
    let mut entry = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: valid descriptors and a live structure.
    if unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, event.as_raw_fd(), &raw mut entry) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut ring, mut signal, main) = (event.try_clone()?, event, tid());
    ready()?;
    let server = thread::spawn(move || -> io::Result<u32> {
        for _ in 0..20 {
            until_asleep(main);
            signal.write_all(&1_u64.to_ne_bytes())?;
            // Until it has gone on.
            thread::sleep(Duration::from_millis(5));
        }
        Ok(tid())
    });
    for _ in 0..20 {
        // SAFETY: room for the one answer.
        unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut entry, 1, -1) };
        ring.read_exact(&mut [0; 8])?;
    }
    say("server", &[u64::from(server.join().unwrap_or(Ok(0))?)]);
    Ok(())
}
