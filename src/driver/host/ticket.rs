//! The 64 bytes by which another process opens memory: a descriptor in this process's `/proc`, and the expected file
//! and range.

use std::fs::OpenOptions;

use bytemuck::{Pod, Zeroable};

use super::fault::Call;
use super::file::{MAGIC, SharedFile};
use crate::driver::{Blob, Result};

/// The purpose of a blob. A blob of another purpose is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Purpose {
    Fabric = 0x66,
    Legacy = 0x6c,
    PoolPointer = 0x70,
}

/// The content of a blob, which is untrusted.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Ticket {
    magic: u64,
    purpose: u32,
    pub(super) process: u32,
    number: u64,
    device: u64,
    inode: u64,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    reserved: u64,
}

impl Ticket {
    /// The blob for the other process.
    pub(super) fn blob(purpose: Purpose, file: &SharedFile, offset: u64, bytes: u64) -> Blob {
        let ticket = Self {
            magic: MAGIC,
            purpose: purpose as u32,
            process: std::process::id(),
            number: u64::from(file.number().unsigned_abs()),
            device: file.inode.0,
            inode: file.inode.1,
            offset,
            bytes,
            reserved: 0,
        };
        bytemuck::cast(ticket)
    }

    pub(super) fn read(call: Call, purpose: Purpose, blob: &Blob) -> Result<Self> {
        let ticket: Self = bytemuck::cast(*blob);
        if ticket.magic != MAGIC || ticket.purpose != purpose as u32 {
            return Err(call.invalid(format!("the blob was not made by a host driver for this call ({purpose:?})")));
        }
        Ok(ticket)
    }

    pub(super) fn names(&self, file: &SharedFile) -> bool {
        (self.device, self.inode) == file.inode
    }

    /// Opens the other process's file, which exists as long as that process.
    pub(super) fn open(&self, call: Call) -> Result<SharedFile> {
        let path = format!("/proc/{}/fd/{}", self.process, self.number);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| call.invalid(format!("the blob names {path}, which cannot be opened: {error}")))?;
        let file = SharedFile::open(call, file)?;
        if !self.names(&file) {
            return Err(call.invalid(format!("the blob names {path}, which is another file by now")));
        }
        Ok(file)
    }
}
