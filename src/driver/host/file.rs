//! The memfds of all shareable memory, and their format, by which another process recognizes one.
//!
//! The first half of a file is memory. The second half has a header, which identifies the file and its content, and the
//! size of every shared range, at a position computed from the range's offset. So a descriptor positioned at the start
//! of a range names the range. The file is sealed against changes of its size, so that no process can truncate it and
//! cause a bus error in another.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use bytemuck::{Pod, Zeroable};

use super::fault::Call;
use super::system::page_size;
use crate::driver::{Place, Result};
use crate::units::{Address, DeviceId};

/// Bytes of memory in a file: far more than a process uses in its life.
pub(super) const MEMORY_BYTES: u64 = 1 << 59;
const FILE_BYTES: u64 = 1 << 60;
/// One record for each page of the smallest size.
const RECORDS: u64 = MEMORY_BYTES + RECORD_PAGE;
const RECORD_PAGE: u64 = 4096;
const RECORD_BYTES: u64 = 8;

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"forebay1");
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// The content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Content {
    /// Physical memory and plain allocations of one place.
    Physical = 1,
    /// The memory of one pool.
    Pool = 2,
}

/// The header in the file.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Header {
    magic: u64,
    content: u32,
    place: u32,
    ordinal: u32,
    reserved: u32,
}

/// The identity of a file on this machine: its device and inode.
pub(super) type Inode = (u64, u64);

/// One memfd, of this process or of another.
pub(super) struct SharedFile {
    file: File,
    pub(super) inode: Inode,
    pub(super) content: Content,
    pub(super) place: Place,
}

impl SharedFile {
    /// A new file, all holes.
    pub(super) fn create(call: Call, content: Content, place: Place) -> Result<Self> {
        // SAFETY: the name is a C string that lives through the call.
        let fd = unsafe { libc::memfd_create(c"forebay-host".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(call.failed(&format!("memfd_create for {place}")));
        }
        // SAFETY: `fd` was just opened and has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        let (kind, ordinal) = match place {
            Place::Device(device) => (0, device.0),
            Place::Host => (1, 0),
            Place::HostNuma(node) => (2, node),
            Place::HostNumaCurrent => (3, 0),
        };
        let header = Header { magic: MAGIC, content: content as u32, place: kind, ordinal, reserved: 0 };
        file.set_len(FILE_BYTES)
            .and_then(|()| file.write_all_at(bytemuck::bytes_of(&header), MEMORY_BYTES))
            .map_err(|error| call.failed_with("setting up a memfd", &error))?;
        // SAFETY: an open file of this driver.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(call.failed("sealing a memfd"));
        }
        let inode = inode(call, &file)?;
        Ok(Self { file, inode, content, place })
    }

    /// The file of a descriptor from another process, which is untrusted.
    pub(super) fn open(call: Call, file: File) -> Result<Self> {
        // SAFETY: queries an open descriptor; a file without seals gives an error.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        // SAFETY: as above.
        let mode = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
        if seals < 0 || seals & SEALS != SEALS || mode & libc::O_ACCMODE != libc::O_RDWR {
            return Err(call.invalid("the descriptor is no memory of a host driver: no sealed memfd, or not writable"));
        }
        let bytes = file.metadata().map_err(|error| call.failed_with("fstat", &error))?.len();
        let mut header = Header::zeroed();
        let read = file.read_exact_at(bytemuck::bytes_of_mut(&mut header), MEMORY_BYTES);
        if bytes != FILE_BYTES || read.is_err() || header.magic != MAGIC {
            return Err(
                call.invalid("the descriptor is a memfd, but no memory of a host driver: its header is missing")
            );
        }
        let content = match header.content {
            1 => Content::Physical,
            2 => Content::Pool,
            other => return Err(call.invalid(format!("the descriptor's memory is of unknown content {other}"))),
        };
        let place = match header.place {
            0 => Place::Device(DeviceId(header.ordinal)),
            1 => Place::Host,
            2 => Place::HostNuma(header.ordinal),
            3 => Place::HostNumaCurrent,
            other => return Err(call.invalid(format!("the descriptor's memory lies at unknown place {other}"))),
        };
        let inode = inode(call, &file)?;
        Ok(Self { file, inode, content, place })
    }

    /// The number of the file in `/proc`, where other processes of the same user can open it.
    pub(super) fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// A new descriptor with its own position, `offset`; close-on-exec.
    pub(super) fn reopen(&self, call: Call, offset: u64) -> Result<OwnedFd> {
        let path = format!("/proc/self/fd/{}", self.number());
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| call.failed_with(&format!("opening {path} again"), &error))?;
        file.seek(SeekFrom::Start(offset)).map_err(|error| call.failed_with("seeking in a memfd", &error))?;
        Ok(file.into())
    }

    /// The position of a descriptor from another process.
    pub(super) fn position(&self, call: Call) -> Result<u64> {
        (&self.file).stream_position().map_err(|error| call.failed_with("asking for the position in a memfd", &error))
    }

    /// Records for other processes that `bytes` bytes at `offset` are shared; 0 bytes: no longer.
    pub(super) fn record(&self, call: Call, offset: u64, bytes: u64) -> Result<()> {
        self.file
            .write_all_at(&bytes.to_le_bytes(), record(offset))
            .map_err(|error| call.failed_with("noting what is shared", &error))
    }

    /// The bytes shared at `offset`. errors: if none are shared, or the record is invalid.
    pub(super) fn recorded(&self, call: Call, offset: u64) -> Result<u64> {
        let mut bytes = [0; RECORD_BYTES as usize];
        let possible = offset < MEMORY_BYTES && offset.is_multiple_of(RECORD_PAGE);
        if possible {
            self.file
                .read_exact_at(&mut bytes, record(offset))
                .map_err(|error| call.failed_with("reading what is shared", &error))?;
        }
        match u64::from_le_bytes(bytes) {
            bytes if bytes > 0 && bytes <= MEMORY_BYTES - offset && bytes.is_multiple_of(RECORD_PAGE) => Ok(bytes),
            _ => Err(call.invalid(format!("nothing is shared at {offset:#x} of the other process's memory"))),
        }
    }

    /// Checks an offset and a size from another process against the record.
    pub(super) fn confirm(&self, call: Call, offset: u64, bytes: u64) -> Result<()> {
        let noted = self.recorded(call, offset)?;
        if noted != bytes || !bytes.is_multiple_of(page_size()) {
            return Err(call.invalid(format!("{noted} bytes are shared at {offset:#x}, the blob says {bytes}")));
        }
        Ok(())
    }

    /// Maps `bytes` bytes from `offset` at `at`, in place of any mapping there.
    ///
    /// # Safety
    /// The addresses must be the driver's, with no mapping there that is still in use.
    pub(super) unsafe fn map_at(&self, call: Call, at: u64, bytes: u64, offset: u64, protection: i32) -> Result<()> {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let place = at as *mut libc::c_void;
        // SAFETY: the caller vouches for the addresses; the mapping keeps the file alive by itself.
        let got = unsafe { libc::mmap(place, bytes as usize, protection, flags, self.number(), offset as i64) };
        if got == libc::MAP_FAILED {
            return Err(call.failed(&format!("mmap of {}+{bytes}", Address(at))));
        }
        Ok(())
    }

    /// Frees a range that may be shared. An importer that still maps it reads zeros from now on; in CUDA the contents
    /// are undefined.
    pub(super) fn forget(&self, call: Call, offset: u64, bytes: u64, shared: bool) {
        if shared {
            // A record that cannot be removed names zeros.
            let _ = self.record(call, offset, 0);
        }
        self.punch(offset, bytes);
    }

    /// Gives the pages of a range back to the system.
    pub(super) fn punch(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: an open file of this driver. If it fails the pages stay until the file is closed: the range is never
        // used again, so that costs RAM and is not wrong.
        unsafe { libc::fallocate(self.number(), mode, offset as i64, bytes as i64) };
    }
}

fn inode(call: Call, file: &File) -> Result<Inode> {
    let metadata = file.metadata().map_err(|error| call.failed_with("fstat", &error))?;
    Ok((metadata.dev(), metadata.ino()))
}

const fn record(offset: u64) -> u64 {
    RECORDS + offset / RECORD_PAGE * RECORD_BYTES
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_is_known_by_its_descriptor_and_its_records() {
        let ours = SharedFile::create(Call::Create, Content::Pool, Place::HostNuma(3)).unwrap();
        ours.record(Call::ExportFd, 8192, 4096).unwrap();
        let fd = ours.reopen(Call::ExportFd, 8192).unwrap();
        let theirs = SharedFile::open(Call::ImportFd, fd.into()).unwrap();
        assert_eq!((theirs.inode, theirs.content, theirs.place), (ours.inode, Content::Pool, Place::HostNuma(3)));
        assert_eq!(theirs.position(Call::ImportFd).unwrap(), 8192);
        assert_eq!(theirs.recorded(Call::ImportFd, 8192).unwrap(), 4096);
        for wrong in [0, 4096, 8193, MEMORY_BYTES, u64::MAX] {
            assert!(theirs.recorded(Call::ImportFd, wrong).is_err(), "{wrong}");
        }
        ours.record(Call::ExportFd, 8192, 0).unwrap();
        assert!(theirs.recorded(Call::ImportFd, 8192).is_err(), "no longer shared");
    }

    #[test]
    fn a_file_cannot_be_truncated_under_those_who_map_it() {
        let ours = SharedFile::create(Call::Create, Content::Physical, Place::Host).unwrap();
        let file: File = ours.file.as_fd().try_clone_to_owned().unwrap().into();
        assert!(file.set_len(0).is_err() && file.set_len(FILE_BYTES * 2).is_err());
    }
}
