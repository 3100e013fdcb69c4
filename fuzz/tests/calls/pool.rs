//! Calls of the pool: blocks, streams, limits, figures, private pools.

use std::ffi::c_void;

use bolero::TypeGenerator;
use bolero::generator::*;
use forebay::abi::pool::create::*;
use forebay::abi::pool::host::*;
use forebay::abi::pool::limits::*;
use forebay::abi::pool::memory::*;
use forebay::abi::pool::private::*;
use forebay::abi::pool::snapshot::*;
use forebay::abi::pool::stats::*;
use forebay::abi::pool::streams::*;
use forebay::abi::pool::try_memory::*;
use forebay_fuzz::Size;

use crate::Index;
use crate::kit::resources::*;
use crate::world::{Owner, StreamOf, World, allowed, done};

/// A device: 0 mostly, 1, or none that there is.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub struct Device(u8, i32);

impl Device {
    pub fn number(self) -> i32 {
        match self.0 % 16 {
            0..=10 => 0,
            11..=14 => 1,
            _ => self.1,
        }
    }

    /// One that there is.
    pub fn real(self) -> i32 {
        self.number().clamp(0, 1)
    }
}

#[derive(Clone, Debug, TypeGenerator)]
pub enum BlockCall {
    Malloc { how: u8, framework: u8, bytes: Size, device: Device, stream: Index },
    Free { which: Index, how: u8, stream: Index, records: bool },
    FreeAgain { which: Index, stream: Index },
    FreeWrong { which: Index, offset: Size },
    FreeElsewhere { which: Index },
    RecordUse { which: Index, stream: Index },
    Look { which: Index, offset: Size },
    Copy { from: Index, to: Index },
    Write { which: Index },
    Export { which: Index, offset: Size },
}

#[derive(Clone, Debug, TypeGenerator)]
pub enum Call {
    StreamCreate { device: Device },
    StreamDestroy { which: Index },
    StreamRegister { which: Index },
    StreamUnregister { which: Index },
    StreamSynchronize { device: Device, which: Index },
    Trim { device: Device, keep: Size },
    SetLimit { device: Device, bytes: Size },
    SetFraction { device: Device, fraction: f64 },
    GetLimit { device: Device },
    AddCallback { id: u64 },
    RemoveCallback { id: u64 },
    Stats { device: Device, size: u8, version: u8, stream: Index },
    ResetPeaks { device: Device },
    Report { device: Device, capacity: u16 },
    Check,
    Snapshot,
    PrivateBegin { device: Device, id: u8, stream: Index },
    PrivateEnd { device: Device, id: u8 },
    PrivateRelease { device: Device, id: u8 },
    ReleaseCaptures { device: Device },
    MemoryInfo { device: Device },
    HostRegister { device: Device, pages: u8, portable: u8, mapped: u8 },
    SizeFor { bytes: Size },
    Null { which: u8 },
}

unsafe extern "C" fn gives_nothing(_: *mut c_void, _: i32, _: u64) -> bool {
    false
}

unsafe extern "C" fn visit(context: *mut c_void, block: *const ForebayBlock) {
    let (live, block) = unsafe { (&mut *context.cast::<Vec<(Block, u64)>>(), &*block) };
    if block.state == ForebayBlockState::Live as u32 {
        live.push((block.address as Block, block.bytes));
    }
}

fn is_block(owner: &Owner) -> bool {
    matches!(owner, Owner::Pool)
}

impl World {
    pub fn block_call(&mut self, call: &BlockCall) {
        match *call {
            BlockCall::Malloc { how, framework, bytes, device, stream } => {
                self.malloc(how % 4, framework, bytes.0, device.number(), stream);
            }
            BlockCall::Free { which, how, stream, records } => {
                let Some(at) = self.pick(which, is_block) else { return };
                let stream = self.stream(self.ranges[&at].device, stream);
                self.free(at, how % 3, stream, records);
            }
            BlockCall::FreeAgain { which, stream } => {
                let Some(at) = self.pick(which, is_block) else { return };
                let stream = self.stream(self.ranges[&at].device, stream);
                self.free(at, 0, stream, false);
                refused(self.pool.free(at, stream), Status::BadFree, &[]);
            }
            BlockCall::FreeWrong { which, offset } => {
                let inside = self.pick(which, |_| true).map_or(0, |at| at.wrapping_add(1));
                let at = inside.wrapping_add(offset.0 as usize);
                if at != 0 && !self.ranges.contains_key(&at) {
                    refused(self.pool.free(at, LEGACY), Status::BadFree, &[]);
                    let at = at as *mut c_void;
                    assert_eq!(unsafe { forebay_pool_try_free(self.pool.0, at, std::ptr::null_mut()) }, 0);
                    refused(done(unsafe { forebay_pool_free_after_all(self.pool.0, at) }), Status::BadFree, &[]);
                }
            }
            BlockCall::FreeElsewhere { which } => {
                let Some(at) = self.pick(which, is_block) else { return };
                refused(shared().free(at, LEGACY), Status::BadFree, &[]);
            }
            BlockCall::RecordUse { which, stream } => {
                let Some(at) = self.pick(which, is_block) else { return };
                let stream = self.stream(self.ranges[&at].device, stream);
                self.pool.record_use(at, stream).unwrap();
                self.ranges.get_mut(&at).unwrap().users.push(stream);
            }
            BlockCall::Look { which, offset } => {
                let Some(at) = self.pick(which, is_block) else { return };
                let bytes = self.ranges[&at].bytes;
                assert_eq!(self.pool.block_size(at).unwrap(), bytes);
                let inside = (offset.0 % bytes) as usize;
                assert_eq!(self.pool.base_address(at + inside).unwrap(), (at, bytes));
                assert_eq!(self.pool.block_size(at + inside).is_ok(), inside == 0);
            }
            BlockCall::Copy { from, to } => {
                let (Some(from), Some(to)) = (self.pick(from, is_block), self.pick(to, is_block)) else { return };
                let (source, target) = (&self.ranges[&from], &self.ranges[&to]);
                if from == to || source.device != target.device {
                    return;
                }
                self.synchronize(source.device, source.stream);
                let (bytes, stream) = (source.bytes.min(target.bytes).min(4096), target.stream as *mut c_void);
                let (to_pointer, from_pointer) = (to as *mut c_void, from as *const c_void);
                let copied =
                    unsafe { forebay_pool_copy(self.pool.0, target.device, to_pointer, from_pointer, bytes, stream) };
                done(copied).unwrap();
                self.synchronize(target.device, target.stream);
                self.mark(to);
            }
            BlockCall::Write { which } => {
                let Some(at) = self.pick(which, |_| true) else { return };
                self.holds_mark(at);
                self.mark(at);
            }
            BlockCall::Export { which, offset } => {
                let Some(at) = self.pick(which, is_block) else { return };
                let inside = offset.0 % self.ranges[&at].bytes;
                if let Err(failure) = exported(&self.pool, at + inside as usize) {
                    allowed(failure, &[Status::Unsupported]);
                }
            }
        }
    }

    fn malloc(&mut self, how: u8, framework: u8, bytes: u64, device: i32, stream: Index) {
        let (pool, stream) = (self.pool.0, self.stream(device, stream));
        let (mut out, handle) = (std::ptr::null_mut(), stream as *mut c_void);
        let framework = u32::from(framework % 8);
        let made = match how {
            0 => done(unsafe { forebay_pool_malloc(pool, bytes, device, handle, &raw mut out) }),
            1 => done(unsafe { forebay_pool_malloc_for(pool, framework, bytes, device, handle, &raw mut out) }),
            2 => done(unsafe { forebay_pool_malloc_ready(pool, bytes, device, handle, &raw mut out) }),
            _ => match unsafe { forebay_pool_try_malloc(pool, framework, bytes, device, handle, &raw mut out) } {
                0 => return,
                _ => Ok(()),
            },
        };
        let is_device = (0..2).contains(&device);
        let is_framework = how != 1 || framework < 6;
        match made {
            Ok(()) => {
                assert!(is_device && is_framework);
                assert_eq!(out.is_null(), bytes == 0);
                if bytes == 0 {
                    return;
                }
                let at = out as Block;
                assert_eq!(at % 512, 0);
                let size = self.pool.block_size(at).unwrap();
                assert_eq!(size, forebay_pool_block_size_for(bytes));
                assert!(size >= bytes);
                self.add(at, size, device, stream, Owner::Pool);
                self.ranges.get_mut(&at).unwrap().in_pool = size;
            }
            Err(failure) if is_device && is_framework => {
                allowed(failure, &[Status::OutOfMemory, Status::InvalidArgument])
            }
            Err(failure) => allowed(failure, &[Status::BadDevice, Status::InvalidArgument]),
        }
    }

    /// Frees a block in the order of `stream`, which comes after what its own stream was given.
    fn free(&mut self, at: Block, how: u8, stream: Stream, records: bool) {
        let range = &self.ranges[&at];
        let (own, device) = (range.stream, range.device);
        if stream != own {
            if records {
                self.pool.record_use(at, own).unwrap();
            } else {
                self.synchronize(device, own);
            }
        }
        match how {
            0 => self.pool.free(at, stream).unwrap(),
            1 => {
                let (at, stream) = (at as *mut c_void, stream as *mut c_void);
                if unsafe { forebay_pool_try_free(self.pool.0, at, stream) } == 0 {
                    done(unsafe { forebay_pool_free(self.pool.0, at, stream) }).unwrap();
                }
            }
            _ => done(unsafe { forebay_pool_free_after_all(self.pool.0, at as *mut c_void) }).unwrap(),
        }
        self.ranges.remove(&at);
    }

    pub fn free_plainly(&mut self, at: Block) {
        self.free(at, 0, self.ranges[&at].stream, false);
    }

    pub fn pool_private_end(&self, device: i32, id: u64) -> Outcome {
        done(unsafe { forebay_pool_private_end(self.pool.0, device, id) })
    }

    pub fn pool_private_release(&self, device: i32, id: u64) -> Outcome {
        done(unsafe { forebay_pool_private_release(self.pool.0, device, id) })
    }

    pub fn pool_call(&mut self, call: &Call) {
        let pool = self.pool.0;
        /// `device` decides whether the call is refused.
        fn expect(device: i32, result: Outcome) {
            match result {
                Ok(()) => assert!((0..2).contains(&device)),
                Err(failure) if !(0..2).contains(&device) => {
                    allowed(failure, &[Status::BadDevice, Status::InvalidArgument])
                }
                Err(failure) => allowed(failure, &[Status::InvalidArgument, Status::NotFound]),
            }
        }
        match *call {
            Call::StreamCreate { device } => {
                if self.streams.len() < 8
                    && let Ok(handle) = self.pool.try_stream(device.number())
                {
                    self.streams.push(StreamOf { handle, device: device.number(), registered: true });
                }
            }
            Call::StreamDestroy { which } => {
                let Some(index) = self.stream_index(which) else { return };
                if !self.needs(self.streams[index].handle) {
                    let StreamOf { handle, device, .. } = self.streams.swap_remove(index);
                    done(unsafe { forebay_stream_destroy(pool, device, handle as *mut c_void) }).unwrap();
                }
            }
            Call::StreamRegister { which } => {
                let Some(index) = self.stream_index(which) else { return };
                let stream = &mut self.streams[index];
                done(unsafe { forebay_stream_register(pool, stream.device, stream.handle as *mut c_void) }).unwrap();
                stream.registered = true;
            }
            Call::StreamUnregister { which } => {
                let Some(index) = self.stream_index(which) else { return };
                let stream = &mut self.streams[index];
                let ended =
                    done(unsafe { forebay_stream_unregister(pool, stream.device, stream.handle as *mut c_void) });
                match std::mem::take(&mut stream.registered) {
                    true => ended.unwrap(),
                    false => drop(refused(ended, Status::NotFound, &[])),
                }
            }
            Call::StreamSynchronize { device, which } => {
                let (device, stream) = (device.number(), self.stream(device.number(), which));
                expect(device, done(unsafe { forebay_stream_synchronize(pool, device, stream as *mut c_void) }));
            }
            Call::Trim { device, keep } => {
                let mut released = 0;
                let device = device.number();
                expect(device, done(unsafe { forebay_pool_trim(pool, device, keep.0, &raw mut released) }));
            }
            Call::SetLimit { device, bytes } => {
                let device = device.number();
                expect(device, done(unsafe { forebay_pool_set_limit(pool, device, bytes.0) }));
            }
            Call::SetFraction { device, fraction } => {
                let device = device.number();
                let result = done(unsafe { forebay_pool_set_fraction(pool, device, fraction) });
                assert!(result.is_err() || (fraction > 0.0 && fraction <= 1.0));
                expect(device, result);
            }
            Call::GetLimit { device } => {
                let (mut limit, device) = (0, device.number());
                expect(device, done(unsafe { forebay_pool_get_limit(pool, device, &raw mut limit) }));
            }
            Call::AddCallback { .. } => {
                self.callbacks.push(self.pool.add_callback(Some(gives_nothing), &0u8).unwrap());
            }
            Call::RemoveCallback { id } => {
                let known = self.callbacks.pop();
                if let Some(known) = known {
                    self.pool.remove_callback(known).unwrap();
                    refused(self.pool.remove_callback(known), Status::NotFound, &[]);
                } else {
                    refused(self.pool.remove_callback(id), Status::NotFound, &[]);
                }
            }
            Call::Stats { device, size, version, stream } => {
                let (device, version) = (device.number(), u32::from(version % 3));
                let size = if size < 128 { size_of::<ForebayPoolStats>() as u32 } else { u32::from(size) };
                if let Ok(stats) = self.pool.try_stats(device, size, version) {
                    let blocks = self.ranges.values().filter(|range| range.device == device);
                    assert_eq!(stats.live, blocks.map(|range| range.in_pool).sum::<u64>());
                    assert!(stats.live <= stats.physical && stats.live <= stats.live_peak);
                } else {
                    assert!(
                        version != FOREBAY_STATS_VERSION
                            || size != size_of::<ForebayPoolStats>() as u32
                            || device != device.clamp(0, 1)
                    );
                }
                let _ = self.pool.try_stream_stats(self.stream(0, stream), size, version);
            }
            Call::ResetPeaks { device } => {
                expect(device.number(), done(unsafe { forebay_pool_reset_peaks(pool, device.number()) }));
            }
            Call::Report { device, capacity } => {
                let (mut text, mut needed) = (vec![b'x'; usize::from(capacity) + 1], 0);
                let device = device.number();
                let told = done(unsafe {
                    forebay_pool_report(pool, device, text.as_mut_ptr().cast(), capacity.into(), &raw mut needed)
                });
                assert_eq!(text.last(), Some(&b'x'));
                expect(device, told);
            }
            Call::Check => self.check(),
            Call::Snapshot => {
                for device in 0..2 {
                    let mut live: Vec<(Block, u64)> = Vec::new();
                    done(unsafe { forebay_pool_snapshot(pool, device, Some(visit), (&raw mut live).cast()) }).unwrap();
                    let blocks = self.ranges.iter().filter(|(_, range)| range.in_pool > 0 && range.device == device);
                    let known: Vec<_> = blocks.map(|(&at, range)| (at, range.in_pool)).collect();
                    assert_eq!(live.len(), known.len());
                    // A short block among long ones may take more than its size.
                    for (told, known) in live.iter().zip(&known) {
                        assert!(told.0 == known.0 && told.1 >= known.1, "{told:?} for {known:?}");
                    }
                }
            }
            Call::PrivateBegin { device, id, stream } => {
                let (device, id) = (device.real(), u64::from(id % 3));
                let stream = self.stream(device, stream);
                let begun = done(unsafe { forebay_pool_private_begin(pool, device, id, stream as *mut c_void) });
                match begun {
                    Ok(()) => {
                        self.begun.push((device, id, stream));
                        self.holds.push((device, id));
                    }
                    Err(failure) => allowed(failure, &[Status::InvalidArgument, Status::Busy]),
                }
            }
            Call::PrivateEnd { device, id } => {
                let (device, id) = (device.real(), u64::from(id % 3));
                let newest = self.begun.iter().rposition(|&(at, begun, _)| (at, begun) == (device, id));
                match newest {
                    Some(newest) => {
                        self.pool_private_end(device, id).unwrap();
                        self.begun.remove(newest);
                    }
                    None => drop(refused(self.pool_private_end(device, id), Status::NotFound, &[])),
                }
            }
            Call::PrivateRelease { device, id } => {
                let (device, id) = (device.real(), u64::from(id % 3));
                // A graph is destroyed after its capture.
                if self.begun.iter().any(|&(at, begun, _)| (at, begun) == (device, id)) {
                    return;
                }
                match self.holds.iter().position(|&hold| hold == (device, id)) {
                    Some(hold) => {
                        self.pool_private_release(device, id).unwrap();
                        self.holds.remove(hold);
                    }
                    None => drop(refused(self.pool_private_release(device, id), Status::NotFound, &[])),
                }
            }
            Call::ReleaseCaptures { device } => {
                let (mut captures, device) = (7, device.number());
                expect(device, done(unsafe { forebay_pool_release_captures(pool, device, &raw mut captures) }));
            }
            Call::MemoryInfo { device } => {
                let (mut free, mut total, device) = (0, 0, device.number());
                expect(device, done(unsafe { forebay_pool_memory_info(pool, device, &raw mut free, &raw mut total) }));
                assert!(free <= total);
            }
            Call::HostRegister { device, pages, portable, mapped } => {
                let memory = vec![0u8; 4096 * usize::from(pages) + 1];
                let (at, bytes, device) = (memory.as_ptr().cast_mut().cast(), memory.len() as u64 - 1, device.real());
                let (portable, mapped) = (u32::from(portable % 3), u32::from(mapped % 3));
                let done_it = done(unsafe { forebay_pool_host_register(pool, device, at, bytes, portable, mapped) });
                assert_eq!(done_it.is_ok(), bytes > 0 && portable < 2 && mapped < 2);
                let ended = done(unsafe { forebay_pool_host_unregister(pool, device, at) });
                assert_eq!(ended.is_ok(), done_it.is_ok());
            }
            Call::SizeFor { bytes } => {
                let size = forebay_pool_block_size_for(bytes.0);
                assert!(bytes.0 > 1 << 60 || (size >= bytes.0 && size <= bytes.0 + bytes.0 / 64 + 512));
            }
            Call::Null { which } => null(which),
        }
    }

    fn stream_index(&self, which: Index) -> Option<usize> {
        (!self.streams.is_empty()).then(|| usize::from(which) % self.streams.len())
    }
}

/// Calls without an object or an output.
fn null(which: u8) {
    let (pool, nothing) = (std::ptr::null_mut(), std::ptr::null_mut());
    let status = unsafe {
        match which % 10 {
            0 => forebay_pool_malloc(pool, 1, 0, nothing, std::ptr::null_mut()),
            1 => forebay_pool_malloc(shared().0, 1, 0, nothing, std::ptr::null_mut()),
            2 => forebay_pool_free(pool, shared().0.cast(), nothing),
            3 => forebay_pool_record_use(pool, nothing, nothing),
            4 => forebay_pool_block_size(shared().0, nothing, std::ptr::null_mut()),
            5 => forebay_pool_check(pool, 0),
            6 => forebay_pool_get_stats(shared().0, 0, std::ptr::null_mut()),
            7 => forebay_stream_create(shared().0, 0, std::ptr::null_mut()),
            8 => forebay_pool_create(std::ptr::null(), std::ptr::null_mut()),
            _ => forebay_pool_trim(pool, 0, 0, std::ptr::null_mut()),
        }
    };
    refused(done(status), Status::NullPointer, &[]);
}
