//! Stream-ordered pools. An allocation can be used at once; a free is an item of work on its stream.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::HostDriver;
use super::fault::Call;
use super::file::{Content, SharedFile};
use super::memory::Memory;
use super::pool_table::{Origin, Pool};
use super::stream::Work;
use super::ticket::{Purpose, Ticket};
use crate::driver::{Access, Blob, ErrorKind, Place, PoolAttribute, PoolHandle, PoolOptions, Pools, Result};
use crate::units::{Address, DeviceId, StreamHandle};

impl HostDriver {
    /// Checks that a pool with these options is possible.
    fn check_pool(&self, call: Call, options: &PoolOptions) -> Result<()> {
        let host = &self.gate.options;
        if let Some(place) = options.place {
            self.memory.read().places.check(call, place)?;
        }
        match options.place {
            _ if options.managed && !host.managed_pools => return Err(call.unsupported("there are no managed pools")),
            None if !options.managed => return Err(call.invalid("only managed memory can lie nowhere in particular")),
            Some(Place::HostNumaCurrent) => return Err(call.invalid("a pool's NUMA node must be named")),
            Some(place) if place.is_host() && !options.managed && !host.host_pools => {
                return Err(call.unsupported("there are no pools of host memory"));
            }
            _ => {}
        }
        if options.share && (options.managed || options.place == Some(Place::Host)) {
            return Err(call.invalid("only pools of a device or of a NUMA node can be shared"));
        }
        if options.share && !host.pool_fd {
            return Err(call.unsupported("no pool can be shared"));
        }
        Ok(())
    }

    fn default_pool(&self, call: Call, device: DeviceId, place: Option<Place>, managed: bool) -> Result<PoolHandle> {
        self.gate.enter(call, device)?;
        let options = PoolOptions { place, managed, share: false, max_size: 0 };
        self.check_pool(call, &options)?;
        self.memory.write().pools.default_of(call, options)
    }

    /// Refuses a stream that is destroyed or being captured, since the host driver has no graphs.
    fn check_stream(&self, call: Call, device: DeviceId, stream: StreamHandle) -> Result<()> {
        let mut streams = self.queues.lock();
        let identity = streams.resolve(call, device, stream)?;
        streams.refuse_capture(call, identity)
    }
}

impl Pools for HostDriver {
    fn pool_default(&self, device: DeviceId, place: Option<Place>, managed: bool) -> Result<PoolHandle> {
        self.default_pool(Call::PoolDefault, device, place, managed)
    }

    fn pool_current(&self, device: DeviceId, place: Option<Place>, managed: bool) -> Result<PoolHandle> {
        self.default_pool(Call::PoolCurrent, device, place, managed)
    }

    fn pool_create(&self, device: DeviceId, options: &PoolOptions) -> Result<PoolHandle> {
        self.gate.enter(Call::PoolCreate, device)?;
        self.check_pool(Call::PoolCreate, options)?;
        self.memory.write().pools.create(Call::PoolCreate, *options, Origin::Created)
    }

    fn pool_destroy(&self, device: DeviceId, pool: PoolHandle) -> Result<()> {
        self.gate.enter(Call::PoolDestroy, device)?;
        let Memory { places, pools, .. } = &mut *self.memory.write();
        pools.destroy(places, pool)
    }

    fn pool_place(&self, device: DeviceId, pool: PoolHandle) -> Result<Option<Place>> {
        self.gate.enter(Call::PoolAttribute, device)?;
        Ok(self.memory.write().pools.get(Call::PoolAttribute, pool)?.options.place)
    }

    fn pool_attribute(&self, device: DeviceId, pool: PoolHandle, attribute: PoolAttribute) -> Result<u64> {
        self.gate.enter(Call::PoolAttribute, device)?;
        self.memory.write().pools.attribute(pool, attribute)
    }

    fn pool_set_attribute(
        &self,
        device: DeviceId,
        pool: PoolHandle,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<()> {
        self.gate.enter(Call::PoolSetAttribute, device)?;
        self.memory.write().pools.set_attribute(pool, attribute, value)
    }

    fn pool_access(&self, device: DeviceId, pool: PoolHandle, place: Place) -> Result<Access> {
        self.gate.enter(Call::PoolAccess, device)?;
        let mut memory = self.memory.write();
        memory.places.check(Call::PoolAccess, place)?;
        Ok(memory.pools.get(Call::PoolAccess, pool)?.rights.of(place))
    }

    fn pool_set_access(&self, device: DeviceId, pool: PoolHandle, place: Place, access: Access) -> Result<()> {
        self.gate.enter(Call::PoolSetAccess, device)?;
        let Memory { places, pools, .. } = &mut *self.memory.write();
        pools.set_access(places, pool, place, access)
    }

    fn pool_trim(&self, device: DeviceId, pool: PoolHandle, keep: u64) -> Result<()> {
        self.gate.enter(Call::PoolTrim, device)?;
        let Memory { places, pools, .. } = &mut *self.memory.write();
        if pools.get(Call::PoolTrim, pool)?.origin == Origin::Imported {
            return Err(Call::PoolTrim.invalid(format!("pool {} was imported: its owner trims it", pool.0)));
        }
        pools.shrink(places, pool.0, keep);
        Ok(())
    }

    /// If memory is short while frees are queued, waits for them and tries again, as CUDA does.
    fn pool_allocate(&self, device: DeviceId, pool: PoolHandle, bytes: u64, stream: StreamHandle) -> Result<Address> {
        let call = Call::PoolAllocate;
        self.gate.enter(call, device)?;
        self.check_stream(call, device, stream)?;
        let allocate = || {
            let Memory { places, blocks, pools, .. } = &mut *self.memory.write();
            pools.allocate(places, blocks, pool, bytes)
        };
        let first = allocate();
        let (at, growth) = match first {
            Err(error) if error.kind == ErrorKind::OutOfMemory && self.memory.read().blocks.frees_are_queued() => {
                self.queues.drain(call)?;
                allocate()?
            }
            other => other?,
        };
        self.gate.totals.charge(call, growth);
        Ok(at)
    }

    fn pool_free(&self, device: DeviceId, at: Address, stream: StreamHandle) -> Result<()> {
        let call = Call::PoolFree;
        self.gate.enter(call, device)?;
        self.check_stream(call, device, stream)?;
        self.memory.write().blocks.begin_pool_free(at)?;
        self.queues
            .enqueue(call, device, stream, Work::PoolFree { at })
            .inspect_err(|_| self.memory.write().blocks.cancel_pool_free(at))?;
        self.gate.totals.charge(call, 0);
        Ok(())
    }

    fn pool_export_fd(&self, device: DeviceId, pool: PoolHandle) -> Result<OwnedFd> {
        let call = Call::PoolExportFd;
        self.gate.enter(call, device)?;
        let mut memory = self.memory.write();
        let found = memory.pools.get(call, pool)?;
        if !found.options.share || found.origin != Origin::Created {
            return Err(call.invalid(format!("pool {} was not created to be shared", pool.0)));
        }
        found.file.reopen(call, 0)
    }

    fn pool_import_fd(&self, device: DeviceId, fd: BorrowedFd<'_>) -> Result<PoolHandle> {
        let call = Call::PoolImportFd;
        self.gate.enter(call, device)?;
        let ours = fd.try_clone_to_owned().map_err(|error| call.failed_with("duplicating the descriptor", &error))?;
        let file = SharedFile::open(call, ours.into())?;
        let options = PoolOptions { place: Some(file.place), managed: false, share: true, max_size: 0 };
        let Memory { places, pools, foreign, .. } = &mut *self.memory.write();
        let file = foreign.adopt(call, file, Content::Pool, places)?;
        Ok(pools.add(Pool::new(options, Origin::Imported, file)))
    }

    fn pool_export_pointer(&self, device: DeviceId, at: Address) -> Result<Blob> {
        self.gate.enter(Call::PoolExportPointer, device)?;
        let (file, offset, bytes) = {
            let Memory { blocks, pools, .. } = &mut *self.memory.write();
            pools.share_block(blocks, at)?
        };
        Ok(Ticket::blob(Purpose::PoolPointer, &file, offset, bytes))
    }

    fn pool_import_pointer(&self, device: DeviceId, pool: PoolHandle, blob: &Blob) -> Result<Address> {
        let call = Call::PoolImportPointer;
        self.gate.enter(call, device)?;
        let ticket = Ticket::read(call, Purpose::PoolPointer, blob)?;
        let Memory { blocks, pools, .. } = &mut *self.memory.write();
        let found = pools.get(call, pool)?;
        if found.origin != Origin::Imported || !ticket.names(&found.file) {
            return Err(call.invalid(format!("the blob names no memory of pool {}, or that was not imported", pool.0)));
        }
        let file = Arc::clone(&found.file);
        file.confirm(call, ticket.offset, ticket.bytes)?;
        pools.open_block(blocks, pool, ticket.offset, ticket.bytes)
    }
}
