//! A trace: a CSV file, read whole and checked before anything is replayed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

/// One line of a trace. Blocks are numbered by their allocation, streams in the order in which they are first named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Allocate { bytes: u64, stream: usize },
    Free { block: usize, stream: usize },
}

#[derive(Debug)]
pub struct Trace {
    /// The file's name without its endings.
    pub name: String,
    pub operations: Vec<Operation>,
    /// The line of each operation.
    pub lines: Vec<usize>,
    /// The trace's number for each stream; 0 is the default stream.
    pub streams: Vec<u64>,
    /// How many blocks are ever allocated.
    pub blocks: usize,
}

/// Reads a file. The error is a sentence for the user.
pub fn read(path: &Path) -> Result<Trace, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("{shown} cannot be opened: {error}"))?;
    let file: Box<dyn Read> =
        if path.extension() == Some(OsStr::new("gz")) { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut reader = Reader::default();
    for (index, line) in BufReader::new(file).split(b'\n').enumerate() {
        let number = index + 1;
        let line = line.map_err(|error| format!("{shown} cannot be read beyond line {index}: {error}"))?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        reader.line(number, text).map_err(|why| format!("{shown}, line {number}: \"{}\": {why}", shorten(text)))?;
    }
    if reader.operations.is_empty() {
        return Err(format!("{shown} has no operations: {SHAPE}"));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    Ok(Trace {
        name: name.strip_suffix(".csv").unwrap_or(name).to_owned(),
        operations: reader.operations,
        lines: reader.lines,
        streams: reader.streams,
        blocks: reader.blocks,
    })
}

const SHAPE: &str = "a line is a,ID,BYTES,STREAM to allocate or f,ID to free";

/// A line may be anything, a binary file without line ends included.
fn shorten(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).take(60).collect();
    if plain.len() < text.len() { format!("{plain}...") } else { plain }
}

/// What an ID stands for.
struct Named {
    block: usize,
    stream: usize,
    /// Where it was allocated, or freed.
    line: usize,
    live: bool,
}

#[derive(Default)]
struct Reader {
    operations: Vec<Operation>,
    lines: Vec<usize>,
    streams: Vec<u64>,
    stream_index: HashMap<u64, usize>,
    named: HashMap<u64, Named>,
    blocks: usize,
}

impl Reader {
    fn line(&mut self, number: usize, text: &str) -> Result<(), String> {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let operation = match *fields.as_slice() {
            ["a", id, bytes, stream] => self.allocate(number, whole("ID", id)?, bytes, stream)?,
            ["f", id] => self.free(number, whole("ID", id)?, None)?,
            ["f", id, bytes] | ["f", id, bytes, ""] => {
                whole("BYTES", bytes)?;
                self.free(number, whole("ID", id)?, None)?
            }
            ["f", id, bytes, stream] => {
                whole("BYTES", bytes)?;
                self.free(number, whole("ID", id)?, Some(stream))?
            }
            _ => return Err(SHAPE.into()),
        };
        self.operations.push(operation);
        self.lines.push(number);
        Ok(())
    }

    fn allocate(&mut self, line: usize, id: u64, bytes: &str, stream: &str) -> Result<Operation, String> {
        if let Some(known) = self.named.get(&id).filter(|known| known.live) {
            return Err(format!("block {id} is live since line {}: an ID names one live block", known.line));
        }
        let bytes = whole("BYTES", bytes)?;
        let stream = self.stream(whole("STREAM", stream)?);
        self.named.insert(id, Named { block: self.blocks, stream, line, live: true });
        self.blocks += 1;
        Ok(Operation::Allocate { bytes, stream })
    }

    fn free(&mut self, line: usize, id: u64, stream: Option<&str>) -> Result<Operation, String> {
        let stream = stream.map(|stream| whole("STREAM", stream)).transpose()?;
        let stream = stream.map(|stream| self.stream(stream));
        let Some(known) = self.named.get_mut(&id) else {
            return Err(format!("block {id} was never allocated"));
        };
        if !known.live {
            return Err(format!("block {id} was freed on line {} already", known.line));
        }
        (known.live, known.line) = (false, line);
        Ok(Operation::Free { block: known.block, stream: stream.unwrap_or(known.stream) })
    }

    fn stream(&mut self, number: u64) -> usize {
        *self.stream_index.entry(number).or_insert_with(|| {
            self.streams.push(number);
            self.streams.len() - 1
        })
    }
}

fn whole(what: &str, text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{what} is \"{text}\", not a whole number from 0 to {}; {SHAPE}", u64::MAX))
}
