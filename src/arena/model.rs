//! Generated programs against a simple model: a list of intervals. Every equation is checked after each step.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::random::Random;

use super::{Arena, ArenaOptions, IDLE, Owner, Retired, Source};
use crate::block::{Header, Table};

const PAGE: u64 = 8;
const PAGES: u64 = 4096;

/// What must hold under any policy: each interval has one owner.
#[derive(Default)]
struct Model {
    live: BTreeMap<u64, (u64, Owner)>,
}

impl Model {
    fn add(&mut self, start: u64, granules: u64, owner: Owner) {
        let before = self.live.range(..start + granules).next_back();
        assert!(before.is_none_or(|(&at, &(len, _))| at + len <= start), "{start}+{granules} overlaps {before:?}");
        self.live.insert(start, (granules, owner));
    }

    fn pick(&self, random: &mut Random) -> Option<(u64, u64, Owner)> {
        let index = random.below(self.live.len().max(1) as u64) as usize;
        self.live.iter().nth(index).map(|(&start, &(granules, owner))| (start, granules, owner))
    }
}

struct Program {
    random: Random,
    arena: Arena,
    table: Arc<Table>,
    model: Model,
    owners: Vec<Owner>,
    private: Owner,
    epoch: u64,
    retiring: Vec<Retired>,
    handles: u64,
    limit: u64,
}

impl Program {
    fn new(seed: u64) -> Self {
        let options = ArenaOptions { page_granules: PAGE, pages: PAGES, small_pages: PAGES / 4, small_granules: 12 };
        let table = Arc::new(Table::new(&options.table_shape()));
        let mut arena = Arena::new(options, Arc::clone(&table));
        let owners = (0..3).map(|_| arena.owner_add(false)).collect();
        let private = arena.owner_add(true);
        let (model, retiring) = (Model::default(), Vec::new());
        Self { random: Random(seed), arena, table, model, owners, private, epoch: 0, retiring, handles: 0, limit: 200 }
    }

    fn owner(&mut self) -> Owner {
        let index = self.random.below(self.owners.len() as u64 + 1) as usize;
        self.owners.get(index).copied().unwrap_or(self.private)
    }

    fn allocate(&mut self) {
        let owner = self.owner();
        let longest = [4, 12, 40, 300][self.random.below(4) as usize];
        let granules = 1 + self.random.below(longest);
        let start = match self.arena.take(owner, granules) {
            Some(start) => start,
            None => {
                let largest = 1 << self.random.below(6);
                let Some(plan) = self.arena.plan(owner, granules, largest) else { return };
                if self.arena.mapped_pages() + plan.new_pages() > self.limit {
                    return;
                }
                if self.random.below(16) == 0 {
                    // The plan failed, and some of its pages could not be unmapped.
                    let stray = plan.fills.iter().filter(|fill| fill.page % 2 == 0);
                    self.retiring.extend(stray.map(|fill| self.arena.keep_mapped(fill.page, fill.pages)));
                    return;
                }
                let created: Vec<u64> = plan
                    .fills
                    .iter()
                    .filter(|fill| fill.source == Source::Create)
                    .map(|_| {
                        self.handles += 1;
                        self.handles
                    })
                    .collect();
                let retired = self.arena.commit(&plan, owner, self.epoch, &created);
                assert!(
                    owner != self.private || retired.iter().all(|old| old.idle),
                    "a private pool took memory in use"
                );
                self.retiring.extend(retired);
                plan.start
            }
        };
        self.table.write(start, Header::live(granules, 0, 0, false));
        self.model.add(start, granules, owner);
    }

    fn free(&mut self) {
        let Some((start, granules, owner)) = self.model.pick(&mut self.random) else { return };
        assert_eq!(self.arena.containing(start + granules - 1), Some((start, granules)));
        self.model.live.remove(&start);
        // Private memory stays private; other memory may be freed in another owner's order.
        let to = if owner == self.private || self.random.below(4) > 0 { owner } else { self.owners[0] };
        self.arena.give(start, to, self.epoch);
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..48 => self.allocate(),
            48..88 => self.free(),
            88..91 => self.epoch += 1,
            91..94 => {
                let (owner, epoch) = (self.owners[self.random.below(3) as usize], self.random.below(self.epoch + 1));
                self.arena.promote(owner, epoch);
            }
            94..96 => {
                let (from, to) =
                    (self.owners[self.random.below(3) as usize], self.owners[self.random.below(3) as usize]);
                let (epoch, wanted) = (self.random.below(self.epoch + 1), 1 + self.random.below(40));
                self.arena.transfer(from, to, epoch, self.epoch, wanted, wanted % 2 == 0);
            }
            96 => {
                let owner = self.owner();
                self.arena.complete_chunks(owner, self.epoch);
            }
            97 => {
                for old in self.retiring.drain(..) {
                    self.arena.unmapped(old);
                }
            }
            98 => {
                for spare in self.arena.spare(self.random.below(40)) {
                    self.arena.forget(spare);
                }
            }
            _ => self.limit = 50 + self.random.below(400),
        }
    }

    fn check(&self, when: &str) {
        let totals = self.arena.check().unwrap_or_else(|error| panic!("{when}: {error}"));
        assert_eq!(totals.live, self.model.live.values().map(|&(granules, _)| granules).sum::<u64>());
        for (&start, &(granules, _)) in &self.model.live {
            assert_eq!(self.table.read(start).granules(), granules, "the header at {start}");
        }
    }

    /// Frees, promotes and removes everything: nothing may be left.
    fn finish(mut self) {
        while let Some((start, _, owner)) = self.model.pick(&mut self.random) {
            self.model.live.remove(&start);
            self.arena.give(start, owner, self.epoch);
        }
        for old in std::mem::take(&mut self.retiring) {
            self.arena.unmapped(old);
        }
        for owner in self.owners.iter().copied().chain([self.private]) {
            self.arena.promote(owner, u64::MAX);
            assert_eq!(self.arena.owner_free(owner), 0);
            self.arena.owner_remove(owner);
        }
        let everything = self.arena.mapped_pages() * PAGE;
        assert_eq!(self.arena.owner_free(IDLE), everything);
        for spare in self.arena.spare(u64::MAX) {
            self.arena.forget(spare);
        }
        let totals = self.arena.check().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((self.arena.mapped_pages(), totals.hole), (0, PAGES * PAGE));
    }
}

fn run(seeds: std::ops::Range<u64>, steps: u64) {
    for seed in seeds {
        let mut program = Program::new(seed);
        for step in 0..steps {
            program.step();
            program.check(&format!("seed {seed}, step {step}"));
        }
        program.finish();
    }
}

/// Miri runs a thousandth of the steps: it looks for undefined behaviour, not for rare states.
const STEPS: u64 = if cfg!(miri) { 100 } else { 12_000 };

#[test]
fn generated_programs_keep_every_equation() {
    run(0..if cfg!(miri) { 3 } else { 24 }, STEPS);
}

#[test]
fn check_notices_a_broken_equation() {
    let mut program = Program::new(1);
    (0..200).for_each(|_| program.step());
    program.check("at rest");
    program.arena.live += 1;
    assert!(program.arena.check().is_err_and(|error| error.contains("live")));
    program.arena.live -= 1;
    program.arena.chunks.mapped += 1;
    assert!(program.arena.check().is_err());
    program.arena.chunks.mapped -= 1;
    let (&start, &hole) = program.arena.holes[1].iter().next().expect("a hole");
    program.arena.holes[1].remove(&start);
    assert!(program.arena.check().is_err_and(|error| error.contains("not indexed") || error.contains("indices")));
    program.arena.holes[1].insert(start, hole);
    program.check("at rest");
}
