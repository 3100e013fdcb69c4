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

impl Line {
    fn write(&self, file: &mut Vec<u8>) {
        let text = match *self {
            Self::Allocate { id, bytes, stream } => format!("a,{},{bytes},{stream}", id % 8),
            Self::Free { id, bytes, stream: Some(stream), .. } => format!("f,{},{bytes},{stream}", id % 8),
            Self::Free { id, bytes, has_bytes: true, .. } => format!("f,{},{bytes},", id % 8),
            Self::Free { id, .. } => format!(" f , {} \r", id % 8),
            Self::Comment(byte) => format!("# {byte}"),
            Self::Bytes(ref bytes) => return file.extend(bytes),
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
        let mut text = Vec::new();
        lines.iter().for_each(|line| line.write(&mut text));
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
