//! A file system in user space that passes everything on to a folder, after a delay: a slow network share, or the file
//! under a slow disk.

use anyhow::{Context, Result};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, MountOption, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, SessionACL, TimeOrNow, WriteFlags,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// For how long requests are held back; may be changed while the file system is mounted.
#[derive(Debug, Default)]
pub struct Delays {
    read_ns: AtomicU64,
    write_ns: AtomicU64,
    names_ns: AtomicU64,
}

impl Delays {
    /// Every read request takes so much longer.
    pub fn read(&self, delay: Duration) {
        set(&self.read_ns, delay);
    }

    /// Every write request and every fsync takes so much longer.
    pub fn write(&self, delay: Duration) {
        set(&self.write_ns, delay);
    }

    /// Nothing takes longer any more.
    pub fn none(&self) {
        [Delays::read, Delays::write, Delays::names].into_iter().for_each(|kind| kind(self, Duration::ZERO));
    }

    /// Every look-up, open and listing takes so much longer.
    pub fn names(&self, delay: Duration) {
        set(&self.names_ns, delay);
    }
}

fn set(cell: &AtomicU64, delay: Duration) {
    cell.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Waits inside the thread that serves the request; there are several.
fn hold_back(cell: &AtomicU64) {
    let ns = cell.load(Ordering::Relaxed);
    if ns > 0 {
        std::thread::sleep(Duration::from_nanos(ns));
    }
}

/// Requests served at the same time.
const THREADS: usize = 8;

/// A mounted pass-through file system, unmounted when dropped. If its process dies, the kernel ends its connection and the
/// mount answers with errors until it is unmounted.
pub struct SlowFs {
    session: Option<BackgroundSession>,
    point: PathBuf,
    delays: Arc<Delays>,
}

impl SlowFs {
    /// Shows `source` at `point`, both existing folders, at first without a delay.
    ///
    /// # Errors
    /// If it cannot be mounted: it needs root and /dev/fuse.
    pub fn mount(source: &Path, point: &Path) -> Result<SlowFs> {
        let delays = Arc::new(Delays::default());
        let files = PassThrough { delays: Arc::clone(&delays), state: Mutex::new(State::new(source)) };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("gpustall-slow".into())];
        config.acl = SessionACL::All;
        config.n_threads = Some(THREADS);
        let session = fuser::spawn_mount(files, point, &config).with_context(|| {
            format!("cannot mount a FUSE file system at {}; it needs root and /dev/fuse", point.display())
        })?;
        Ok(SlowFs { session: Some(session), point: point.to_owned(), delays })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Its delays.
    pub fn delays(&self) -> &Delays {
        &self.delays
    }
}

impl Drop for SlowFs {
    fn drop(&mut self) {
        if let Some(session) = self.session.take()
            && let Err(error) = session.umount_and_join()
        {
            eprintln!("cannot unmount {}: {error}", self.point.display());
        }
    }
}

/// Attributes and names are asked for again each time, as a network file system does that shares its files.
const NEVER: Duration = Duration::ZERO;

struct PassThrough {
    delays: Arc<Delays>,
    state: Mutex<State>,
}

/// Which path an inode number stands for, and which files are open. Numbers are our own: hard links do not matter here.
struct State {
    paths: HashMap<u64, PathBuf>,
    numbers: HashMap<PathBuf, u64>,
    open: HashMap<u64, Arc<File>>,
    next: u64,
}

impl State {
    fn new(source: &Path) -> State {
        let root = source.to_owned();
        State {
            paths: HashMap::from([(INodeNo::ROOT.0, root.clone())]),
            numbers: HashMap::from([(root, INodeNo::ROOT.0)]),
            open: HashMap::new(),
            next: INodeNo::ROOT.0 + 1,
        }
    }

    fn fresh(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    fn number(&mut self, path: &Path) -> u64 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = self.fresh();
        self.paths.insert(number, path.to_owned());
        self.numbers.insert(path.to_owned(), number);
        number
    }
}

impl PassThrough {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        self.state().paths.get(&inode.0).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        self.state().open.get(&handle.0).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn keep(&self, file: File) -> FileHandle {
        let mut state = self.state();
        let handle = state.fresh();
        state.open.insert(handle, Arc::new(file));
        FileHandle(handle)
    }

    fn attributes(&self, path: &Path) -> io::Result<FileAttr> {
        let meta = fs::symlink_metadata(path)?;
        Ok(attributes(self.state().number(path), &meta))
    }
}

fn kind(of: fs::FileType) -> FileType {
    if of.is_dir() {
        FileType::Directory
    } else if of.is_symlink() {
        FileType::Symlink
    } else if of.is_block_device() {
        FileType::BlockDevice
    } else if of.is_char_device() {
        FileType::CharDevice
    } else if of.is_fifo() {
        FileType::NamedPipe
    } else if of.is_socket() {
        FileType::Socket
    } else {
        FileType::RegularFile
    }
}

fn attributes(number: u64, meta: &Metadata) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: meta.size(),
        blocks: meta.blocks(),
        atime: meta.accessed().unwrap_or(SystemTime::UNIX_EPOCH),
        mtime: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        ctime: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        crtime: SystemTime::UNIX_EPOCH,
        kind: kind(meta.file_type()),
        perm: (meta.mode() & 0o7777) as u16,
        nlink: u32::try_from(meta.nlink()).unwrap_or(u32::MAX),
        uid: meta.uid(),
        gid: meta.gid(),
        rdev: u32::try_from(meta.rdev()).unwrap_or(0),
        blksize: u32::try_from(meta.blksize()).unwrap_or(4096),
        flags: 0,
    }
}

/// Answers with what a closure gives, or with its error.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $good:expr) => {
        match (|| -> io::Result<_> { $result })() {
            Ok($value) => $good,
            Err(error) => $reply.error(Errno::from(error)),
        }
    };
}

impl Filesystem for PassThrough {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        hold_back(&self.delays.names_ns);
        answer!(reply, self.attributes(&self.child(parent, name)?), attr => reply.entry(&NEVER, &attr, Generation(0)));
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.attributes(&self.path(inode)?), attr => reply.attr(&NEVER, &attr));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = || {
            let path = self.path(inode)?;
            if let Some(size) = size {
                File::options().write(true).open(&path)?.set_len(size)?;
            }
            if let Some(mode) = mode {
                fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode & 0o7777))?;
            }
            self.attributes(&path)
        };
        answer!(reply, change(), attr => reply.attr(&NEVER, &attr));
    }

    fn mkdir(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        let make = || {
            let path = self.child(parent, name)?;
            fs::create_dir(&path)?;
            self.attributes(&path)
        };
        answer!(reply, make(), attr => reply.entry(&NEVER, &attr, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, fs::remove_file(self.child(parent, name)?), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, fs::remove_dir(self.child(parent, name)?), () => reply.ok());
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let rename = || {
            let (from, to) = (self.child(parent, name)?, self.child(new_parent, new_name)?);
            fs::rename(&from, &to)?;
            // The number goes with the file.
            let mut state = self.state();
            state.numbers.remove(&to);
            if let Some(number) = state.numbers.remove(&from) {
                state.numbers.insert(to.clone(), number);
                state.paths.insert(number, to);
            }
            Ok(())
        };
        answer!(reply, rename(), () => reply.ok());
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        hold_back(&self.delays.names_ns);
        let open = || {
            let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
            File::options().read(true).write(writes).open(self.path(inode)?)
        };
        answer!(reply, open(), file => reply.opened(self.keep(file), FopenFlags::empty()));
    }

    fn create(&self, _: &Request, parent: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        let create = || {
            let path = self.child(parent, name)?;
            let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
            Ok((self.attributes(&path)?, file))
        };
        answer!(reply, create(), (attr, file) => {
            reply.created(&NEVER, &attr, Generation(0), self.keep(file), FopenFlags::empty());
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        hold_back(&self.delays.read_ns);
        let read = || {
            let file = self.file(handle)?;
            let mut data = vec![0; size as usize];
            let mut filled = 0;
            // A short answer means the end of the file.
            while let Some(rest) = data.get_mut(filled..).filter(|rest| !rest.is_empty()) {
                match file.read_at(rest, offset + filled as u64)? {
                    0 => break,
                    n => filled += n,
                }
            }
            data.truncate(filled);
            Ok(data)
        };
        answer!(reply, read(), data => reply.data(&data));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        hold_back(&self.delays.write_ns);
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        answer!(reply, self.file(handle)?.write_all_at(data, offset), () => reply.written(length));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.state().open.remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        hold_back(&self.delays.write_ns);
        answer!(reply, self.file(handle)?.sync_data(), () => reply.ok());
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        hold_back(&self.delays.names_ns);
        let list = || {
            let path = self.path(inode)?;
            let mut entries = fs::read_dir(&path)?.collect::<io::Result<Vec<_>>>()?;
            entries.sort_by_key(fs::DirEntry::file_name);
            let mut all = vec![(inode.0, FileType::Directory, ".".into()), (inode.0, FileType::Directory, "..".into())];
            for entry in entries {
                all.push((self.state().number(&entry.path()), kind(entry.file_type()?), entry.file_name()));
            }
            Ok(all)
        };
        answer!(reply, list(), all => {
            for (n, (number, kind, name)) in (1u64..).zip(all).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
                if reply.add(INodeNo(number), n, kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }
}
