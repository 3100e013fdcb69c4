//! Pools: each has its own file, and counts of bytes held and used.
//!
//! A freed block's pages go back to the system at once, so that a use after the free is detected; the pool keeps only
//! the count of bytes. `reserved` is the bytes that the pool has of its place's capacity, used or idle.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blocks::{Block, Blocks, Kind};
use super::fault::Call;
use super::file::{Content, SharedFile};
use super::places::Places;
use super::rights::Rights;
use super::system::page_size;
use crate::driver::{Access, DriverError, ErrorKind, Place, PoolAttribute, PoolHandle, PoolOptions, Result};
use crate::units::{Address, Human};

/// The origin of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The driver: the default pool of its place.
    Driver,
    /// `pool_create`.
    Created,
    /// `pool_import_fd`: its blocks belong to another process.
    Imported,
}

/// One pool. Kept while it has blocks, even if it was destroyed.
pub(super) struct Pool {
    pub(super) options: PoolOptions,
    pub(super) origin: Origin,
    pub(super) file: Arc<SharedFile>,
    pub(super) rights: Rights,
    destroyed: bool,
    /// The start of the next block in the file. Only grows.
    next_offset: u64,
    blocks: u64,
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
    threshold: u64,
    /// The three REUSE_* attributes, which have no effect here.
    reuse: [bool; 3],
}

impl Pool {
    pub(super) fn new(options: PoolOptions, origin: Origin, file: Arc<SharedFile>) -> Self {
        let rights = match options.place {
            Some(place) if !options.managed => Rights::only(place),
            _ => Rights::ALL,
        };
        Self {
            options,
            origin,
            file,
            rights,
            destroyed: false,
            next_offset: 0,
            blocks: 0,
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            threshold: 0,
            reuse: [true; 3],
        }
    }

    /// The place whose capacity its memory counts against. Managed memory may exceed a device's.
    fn account(&self) -> Place {
        self.options.place.filter(|_| !self.options.managed).unwrap_or(Place::Host)
    }

    fn excess(&self) -> bool {
        self.reserved > self.used.max(self.threshold)
    }

    fn use_more(&mut self, bytes: u64) {
        self.blocks += 1;
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        self.reserved = self.reserved.max(self.used);
        self.reserved_high = self.reserved_high.max(self.reserved);
    }
}

/// All pools by their handles.
pub(super) struct PoolTable {
    pools: BTreeMap<u64, Pool>,
    /// The next handle. Only grows.
    next: u64,
}

impl PoolTable {
    pub(super) fn new() -> Self {
        Self { pools: BTreeMap::new(), next: 1 }
    }

    /// The number of pools created or imported and not destroyed.
    pub(super) fn count(&self) -> u64 {
        self.pools.values().filter(|pool| pool.origin != Origin::Driver && !pool.destroyed).count() as u64
    }

    /// The pool of a block.
    pub(super) fn owner(&self, block: &Block) -> Option<&Pool> {
        match block.kind {
            Kind::Pooled { pool, .. } => self.pools.get(&pool),
            _ => None,
        }
    }

    /// The default pool of a place, created on first use.
    pub(super) fn default_of(&mut self, call: Call, options: PoolOptions) -> Result<PoolHandle> {
        let found = self.pools.iter().find(|(_, pool)| pool.origin == Origin::Driver && pool.options == options);
        match found {
            Some((&handle, _)) => Ok(PoolHandle(handle)),
            None => self.create(call, options, Origin::Driver),
        }
    }

    /// Trims the default pool of a place, if it exists.
    pub(super) fn trim_default(&mut self, places: &mut Places, options: PoolOptions) {
        let found = self.pools.iter().find(|(_, pool)| pool.origin == Origin::Driver && pool.options == options);
        if let Some((&handle, _)) = found {
            self.shrink(places, handle, 0);
        }
    }

    pub(super) fn create(&mut self, call: Call, options: PoolOptions, origin: Origin) -> Result<PoolHandle> {
        let file = SharedFile::create(call, Content::Pool, options.place.unwrap_or(Place::Host))?;
        Ok(self.add(Pool::new(options, origin, Arc::new(file))))
    }

    pub(super) fn add(&mut self, pool: Pool) -> PoolHandle {
        let handle = self.next;
        self.next += 1;
        self.pools.insert(handle, pool);
        PoolHandle(handle)
    }

    pub(super) fn get(&mut self, call: Call, pool: PoolHandle) -> Result<&mut Pool> {
        let found = self.pools.get_mut(&pool.0).filter(|pool| !pool.destroyed);
        found.ok_or_else(|| call.invalid(format!("pool {} is destroyed, or never was", pool.0)))
    }

    pub(super) fn destroy(&mut self, places: &mut Places, handle: PoolHandle) -> Result<()> {
        let pool = self.get(Call::PoolDestroy, handle)?;
        if pool.origin == Origin::Driver {
            return Err(Call::PoolDestroy.invalid(format!("pool {} is a default pool: the driver keeps it", handle.0)));
        }
        pool.destroyed = true;
        pool.threshold = 0;
        self.shrink(places, handle.0, 0);
        self.drop_if_over(handle.0);
        Ok(())
    }

    fn drop_if_over(&mut self, handle: u64) {
        if self.pools.get(&handle).is_some_and(|pool| pool.destroyed && pool.blocks == 0) {
            self.pools.remove(&handle);
        }
    }

    /// Frees idle memory until `keep` bytes are held.
    pub(super) fn shrink(&mut self, places: &mut Places, handle: u64, keep: u64) {
        let Some(pool) = self.pools.get_mut(&handle).filter(|pool| pool.origin != Origin::Imported) else { return };
        let (account, target) = (pool.account(), pool.used.max(keep).min(pool.reserved));
        let idle = pool.reserved - target;
        pool.reserved = target;
        places.give_back(account, idle);
    }

    /// Whether a pool holds more than its threshold.
    pub(super) fn exceed(&self) -> bool {
        self.pools.values().any(Pool::excess)
    }

    /// Shrinks all pools to their thresholds, as CUDA does at each synchronization.
    pub(super) fn shrink_to_thresholds(&mut self, places: &mut Places) {
        let over = self.pools.iter().filter(|(_, pool)| pool.excess()).map(|(&handle, pool)| (handle, pool.threshold));
        for (handle, threshold) in over.collect::<Vec<_>>() {
            self.shrink(places, handle, threshold);
        }
    }

    // ---- blocks ----------------------------------------------------------------------------------------

    /// Returns the address, and the growth of the pool in bytes.
    pub(super) fn allocate(
        &mut self,
        places: &mut Places,
        blocks: &mut Blocks,
        handle: PoolHandle,
        bytes: u64,
    ) -> Result<(Address, u64)> {
        let call = Call::PoolAllocate;
        let bytes = Blocks::round(call, bytes)?;
        let pool = self.get(call, handle)?;
        if pool.origin == Origin::Imported {
            return Err(call.invalid(format!("pool {} was imported: only its owner allocates from it", handle.0)));
        }
        let (account, file, offset) = (pool.account(), Arc::clone(&pool.file), pool.next_offset);
        let growth = (pool.used + bytes).saturating_sub(pool.reserved);
        let most = pool.options.max_size.checked_next_multiple_of(page_size()).unwrap_or(u64::MAX);
        if pool.options.max_size > 0 && pool.reserved + growth > most {
            let (asked, used) = (Human(bytes), Human(pool.used));
            let detail = format!("asked for {asked} ({bytes} bytes), {used} of the pool's {} are in use", Human(most));
            return Err(DriverError::new(ErrorKind::OutOfMemory, call.name(), detail));
        }
        places.take(call, account, growth)?;
        let kind = Kind::Pooled { pool: handle.0, offset, shared: false, freeing: false };
        match blocks.add_of_file(call, (&file, offset), bytes, kind) {
            Ok(at) => {
                let pool = self.get(call, handle)?;
                pool.next_offset += bytes;
                pool.use_more(bytes);
                Ok((at, growth))
            }
            Err(error) => {
                places.give_back(account, growth);
                Err(error)
            }
        }
    }

    /// Maps a block of another process's pool.
    pub(super) fn open_block(
        &mut self,
        blocks: &mut Blocks,
        handle: PoolHandle,
        offset: u64,
        bytes: u64,
    ) -> Result<Address> {
        let call = Call::PoolImportPointer;
        let file = Arc::clone(&self.get(call, handle)?.file);
        let kind = Kind::Pooled { pool: handle.0, offset, shared: false, freeing: false };
        let at = blocks.add_of_file(call, (&file, offset), bytes, kind)?;
        self.get(call, handle)?.use_more(bytes);
        Ok(at)
    }

    /// Frees the block, when the free runs on its stream.
    pub(super) fn finish_free(&mut self, places: &mut Places, blocks: &mut Blocks, at: Address) {
        let Some(&Block { bytes, kind: Kind::Pooled { pool: handle, offset, shared, .. } }) = blocks.get(at) else {
            return;
        };
        if blocks.remove(Call::PoolFree, at.0).is_err() {
            // Too many mappings: the block stays in the table, where a test for leaks finds it.
            return;
        }
        let Some(pool) = self.pools.get_mut(&handle) else { return };
        pool.blocks -= 1;
        pool.used -= bytes;
        if pool.origin == Origin::Imported {
            pool.reserved = pool.used;
        } else {
            pool.file.forget(Call::PoolFree, offset, bytes, shared);
        }
        if pool.destroyed {
            self.shrink(places, handle, 0);
            self.drop_if_over(handle);
        }
    }

    /// Records a block as shared, and returns its file, offset and size.
    pub(super) fn share_block(&self, blocks: &mut Blocks, at: Address) -> Result<(Arc<SharedFile>, u64, u64)> {
        let call = Call::PoolExportPointer;
        let Some(Block { bytes, kind: Kind::Pooled { pool, offset, shared, freeing: false } }) = blocks.get_mut(at)
        else {
            return Err(call.invalid(format!("{at} is not the start of a live allocation of a pool")));
        };
        let Some(owner) = self.pools.get(pool).filter(|pool| pool.options.share && pool.origin == Origin::Created)
        else {
            return Err(call.invalid(format!("{at} belongs to pool {pool}, which was not created to be shared")));
        };
        owner.file.record(call, *offset, *bytes)?;
        *shared = true;
        Ok((Arc::clone(&owner.file), *offset, *bytes))
    }

    // ---- attributes and access -------------------------------------------------------------------------

    pub(super) fn attribute(&mut self, handle: PoolHandle, attribute: PoolAttribute) -> Result<u64> {
        use PoolAttribute as A;
        let pool = self.get(Call::PoolAttribute, handle)?;
        Ok(match attribute {
            A::ReuseFollowEventDependencies => pool.reuse[0].into(),
            A::ReuseAllowOpportunistic => pool.reuse[1].into(),
            A::ReuseAllowInternalDependencies => pool.reuse[2].into(),
            A::ReleaseThreshold => pool.threshold,
            A::ReservedCurrent => pool.reserved,
            A::ReservedHigh => pool.reserved_high,
            A::UsedCurrent => pool.used,
            A::UsedHigh => pool.used_high,
        })
    }

    pub(super) fn set_attribute(&mut self, handle: PoolHandle, attribute: PoolAttribute, value: u64) -> Result<()> {
        use PoolAttribute as A;
        let call = Call::PoolSetAttribute;
        let pool = self.get(call, handle)?;
        if pool.origin == Origin::Imported {
            return Err(call.invalid(format!("pool {} was imported: its owner sets its attributes", handle.0)));
        }
        let refused = |allowed: &str| Err(call.invalid(format!("{attribute:?} of a pool to {value}: {allowed}")));
        match (attribute, value) {
            (A::ReuseFollowEventDependencies, 0 | 1) => pool.reuse[0] = value == 1,
            (A::ReuseAllowOpportunistic, 0 | 1) => pool.reuse[1] = value == 1,
            (A::ReuseAllowInternalDependencies, 0 | 1) => pool.reuse[2] = value == 1,
            (A::ReleaseThreshold, _) => pool.threshold = value,
            (A::ReservedHigh, 0) => pool.reserved_high = pool.reserved,
            (A::UsedHigh, 0) => pool.used_high = pool.used,
            (A::ReservedCurrent | A::UsedCurrent, _) => return refused("it is read only"),
            (A::ReservedHigh | A::UsedHigh, _) => return refused("only 0 is possible"),
            _ => return refused("0 and 1 are possible"),
        }
        Ok(())
    }

    pub(super) fn set_access(
        &mut self,
        places: &Places,
        handle: PoolHandle,
        place: Place,
        access: Access,
    ) -> Result<()> {
        let call = Call::PoolSetAccess;
        places.check(call, place)?;
        let pool = self.get(call, handle)?;
        let lies = pool.options.place.filter(|_| !pool.options.managed);
        // Every place has access to managed memory, a place to its own memory, and the host never to a device's.
        let fixed = match (lies, place) {
            (None, _) => Some(Access::ReadWrite),
            (Some(Place::Device(home)), Place::Device(device)) => (home == device).then_some(Access::ReadWrite),
            (Some(Place::Device(_)), _) => Some(Access::None),
            (Some(_), who) => who.is_host().then_some(Access::ReadWrite),
        };
        if let Some(only) = fixed.filter(|&only| only != access) {
            let wish = format!("{access:?} for {place} to pool {}", handle.0);
            return Err(call.invalid(format!("{wish}: {only:?} is all that is possible there")));
        }
        pool.rights.set(place, access);
        Ok(())
    }
}
