//! The replay example's reader of traces: any bytes, and lines that nearly make sense. A trace that is read allocates each
//! block before it is freed, and frees it once.

#![allow(clippy::unwrap_used, reason = "a panic is the report")]

#[path = "../../examples/replay/trace.rs"]
mod trace;

use std::path::Path;

use bolero::TypeGenerator;
use bolero::generator::*;

#[derive(Clone, Debug, TypeGenerator)]
enum Line {
    Allocate { id: u8, bytes: u64, stream: u8 },
    Free { id: u8, bytes: u64, stream: Option<u8>, has_bytes: bool },
    Comment(u8),
    Bytes(Vec<u8>),
}

/// The IDs of a trace that makes sense: those that are live, and the next one.
#[derive(Default)]
struct Names {
    live: Vec<u64>,
    next: u64,
}

impl Names {
    /// Mostly a new one.
    fn allocate(&mut self, id: u8) -> u64 {
        if id > 250 {
            return u64::from(id % 8);
        }
        self.next += 1;
        self.live.push(self.next);
        self.next
    }

    /// Mostly a live one, which is seldom freed again.
    fn free(&mut self, id: u8) -> u64 {
        match self.live.len() {
            0 => 0,
            count if id > 240 => self.live[usize::from(id) % count],
            count => self.live.swap_remove(usize::from(id) % count),
        }
    }
}

impl Line {
    fn write(&self, file: &mut Vec<u8>, names: &mut Names) {
        let text = match *self {
            Self::Allocate { id, bytes, stream } => format!("a,{},{bytes},{stream}", names.allocate(id)),
            Self::Free { .. } if names.live.is_empty() => return,
            Self::Free { id, bytes, stream: Some(stream), .. } => format!("f,{},{bytes},{stream}", names.free(id)),
            Self::Free { id, bytes, has_bytes: true, .. } => format!("f,{},{bytes},", names.free(id)),
            Self::Free { id, .. } => format!(" f , {} \r", names.free(id)),
            Self::Comment(byte) => format!("# {byte}"),
            // Seldom: hardly any is a line.
            Self::Bytes(ref bytes) if bytes.len() > 30 => return file.extend(bytes),
            Self::Bytes(_) => return,
        };
        file.extend(text.as_bytes());
        file.push(b'\n');
    }
}

fn check(path: &Path) {
    let Ok(trace) = trace::read(path) else { return };
    assert_eq!(trace.operations.len(), trace.lines.len());
    assert!(trace.lines.is_sorted() && !trace.lines.is_empty());
    assert_eq!(trace.name, "trace");
    let mut live = Vec::new();
    for operation in trace.operations {
        match operation {
            trace::Operation::Allocate { stream, .. } => {
                assert!(stream < trace.streams.len());
                live.push(true);
            }
            trace::Operation::Free { block, stream } => {
                assert!(stream < trace.streams.len());
                assert!(std::mem::take(&mut live[block]), "block {block} is not live");
            }
        }
    }
    assert_eq!(live.len(), trace.blocks);
}

#[test]
fn trace() {
    let folder = std::env::temp_dir().join(format!("forebay-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (plain, packed) = (folder.join("trace.csv"), folder.join("trace.csv.gz"));
    let input = (produce::<bool>(), produce::<Vec<Line>>().with().len(0usize..40));
    bolero::check!(name = "trace").with_max_len(16 << 10).with_generator(input).for_each(|(is_cut, lines)| {
        let (mut text, mut names) = (Vec::new(), Names::default());
        lines.iter().for_each(|line| line.write(&mut text, &mut names));
        std::fs::write(&plain, &text).unwrap();
        check(&plain);
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut writer, &text).unwrap();
        let mut bytes = writer.finish().unwrap();
        if *is_cut {
            bytes.truncate(text.len() % bytes.len());
        }
        std::fs::write(&packed, &bytes).unwrap();
        check(&packed);
        // What is no archive at all.
        std::fs::write(&packed, &text).unwrap();
        check(&packed);
    });
    std::fs::remove_dir_all(folder).unwrap();
}
