//! Memory of captured graphs: private pools.

pub(crate) mod captured;
pub(crate) mod private;
pub(crate) mod restore;
