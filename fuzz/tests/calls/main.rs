//! The C ABI as a program of calls on the host driver, and a plain model of what is live: address ranges never overlap,
//! contents are kept, what the header calls an error is one, nothing panics, and every equation of the pool holds.
//!
//! Objects are alive in every call, and streams as the header asks: the rest is undefined and not tried.

#![allow(clippy::unwrap_used, reason = "a panic is the report")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one reason for all: objects are alive, outputs are locals, and wrong addresses are what is tested"
)]

#[path = "../../../tests/kit/mod.rs"]
mod kit;
mod pool;
mod resource;
mod world;

use bolero::TypeGenerator;
use bolero::generator::*;

use world::World;

/// How the program's own pool is made.
#[derive(Clone, Debug, TypeGenerator)]
pub struct Shape {
    pinned: bool,
    grow_first: bool,
    is_limited: bool,
    limit: u32,
    max_chunk: u8,
}

/// Which of the things that there are: counted round.
pub type Index = u8;

#[derive(Clone, Debug, TypeGenerator)]
enum Call {
    Pool(pool::Call),
    Blocks(pool::BlockCall),
    MoreBlocks(pool::BlockCall),
    Resource(resource::Call),
    Buffer(resource::BufferCall),
}

#[test]
fn calls() {
    forebay_fuzz::set_up();
    let programs = (produce::<Shape>(), produce::<Vec<Call>>().with().len(1usize..=200));
    bolero::check!(name = "calls").with_max_len(64 << 10).with_generator(programs).for_each(|(shape, calls)| {
        let Some(mut world) = World::new(shape) else { return };
        for call in calls {
            match call {
                Call::Pool(call) => world.pool_call(call),
                Call::Blocks(call) | Call::MoreBlocks(call) => world.block_call(call),
                Call::Resource(call) => world.resource_call(call),
                Call::Buffer(call) => world.buffer_call(call),
            }
        }
        world.end();
    });
}
