//! Files of imported memory.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::fault::Call;
use super::file::{Content, Inode, SharedFile};
use super::places::Places;
use crate::driver::Result;

/// Files of other processes, and files of this process that were imported again: one open descriptor each, for all
/// handles.
#[derive(Default)]
pub(super) struct Foreign(HashMap<Inode, Weak<SharedFile>>);

impl Foreign {
    /// Opens an imported file, once for all imports from it. It must have the given content, at an existing place.
    pub(super) fn adopt(
        &mut self,
        call: Call,
        file: SharedFile,
        content: Content,
        places: &Places,
    ) -> Result<Arc<SharedFile>> {
        if file.content != content {
            return Err(call.invalid(format!("the memory is {:?}, expected {content:?}", file.content)));
        }
        places.check(call, file.place)?;
        if let Some(known) = self.0.get(&file.inode).and_then(Weak::upgrade) {
            return Ok(known);
        }
        self.0.retain(|_, file| file.strong_count() > 0);
        let file = Arc::new(file);
        self.0.insert(file.inode, Arc::downgrade(&file));
        Ok(file)
    }
}
