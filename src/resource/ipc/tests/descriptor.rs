use super::{Random, damage};
use crate::error::Error;
use crate::resource::ipc::{DESCRIPTOR_BYTES, Descriptor, Key, Location, Path, Route};
use uuid::Uuid;

fn uuid(byte: u8) -> Uuid {
    Uuid::from_bytes([byte; 16])
}

/// A descriptor of each kind, and extreme sizes.
fn samples() -> Vec<Descriptor> {
    let exchange = |fabric| Route::Exchange { service: uuid(1), key: Key(uuid(2)), fabric };
    [
        (Route::Pool { blob: [7; 64], pool: None }, 1, Location::Device([3; 16]), Path::Pool),
        (Route::Pool { blob: [0; 64], pool: Some(uuid(9)) }, 1 << 57, Location::Host, Path::Pool),
        (exchange(false), 4096, Location::HostNuma(0), Path::Fd),
        (exchange(true), 77, Location::HostNuma(u32::MAX), Path::Fabric),
        (Route::Legacy { blob: [255; 64], offset: 512 }, 1 << 30, Location::Device([0; 16]), Path::Legacy),
        (Route::Legacy { blob: [1; 64], offset: (1 << 57) - 5 }, 5, Location::Device([1; 16]), Path::Legacy),
    ]
    .map(|(route, bytes, location, path)| {
        let descriptor = Descriptor::new(route, bytes, location).unwrap();
        assert_eq!((descriptor.path(), descriptor.bytes(), descriptor.location()), (path, bytes, location));
        descriptor
    })
    .to_vec()
}

#[track_caller]
fn refused(bytes: &[u8], word: &str) {
    match Descriptor::decode(bytes) {
        Err(Error::Invalid(text)) => assert!(text.contains(word), "no {word:?} in: {text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_encoded_is_decoded() {
    for descriptor in samples() {
        assert_eq!(Descriptor::decode(&descriptor.encode()).unwrap(), descriptor);
    }
}

#[test]
fn the_layout_is_the_documented_one() {
    let route = Route::Exchange { service: uuid(0x51), key: Key(uuid(0x4b)), fabric: false };
    let mut wanted = [0; DESCRIPTOR_BYTES];
    wanted[..16].copy_from_slice(b"FBAYMEM\0\x01\0\0\0\x02\0\0\0");
    wanted[16..24].copy_from_slice(&[8, 7, 6, 5, 4, 3, 1, 0]);
    wanted[32] = 1;
    wanted[40..56].fill(0xde);
    wanted[56..72].fill(0x4b);
    wanted[72..88].fill(0x51);
    let descriptor = Descriptor::new(route, 0x0001_0304_0506_0708, Location::Device([0xde; 16])).unwrap();
    assert_eq!(descriptor.encode(), wanted);

    let legacy = Route::Legacy { blob: [0xb1; 64], offset: 0x0102 };
    let raw = Descriptor::new(legacy, 1, Location::HostNuma(0x0304)).unwrap().encode();
    assert_eq!((raw[12], raw[24], raw[25], raw[32], raw[36], raw[37]), (4, 2, 1, 3, 4, 3));
    assert_eq!((&raw[88..152], &raw[152..]), (&[0xb1; 64][..], &[0; 104][..]));
}

#[test]
fn a_wrong_length_a_wrong_beginning_and_unknown_numbers_are_refused() {
    let good = samples()[2].encode();
    for length in [0, 1, 8, 255] {
        refused(&good[..length], &format!("{length} bytes instead of 256"));
    }
    refused(&[&good[..], &[0]].concat(), "257 bytes");
    let changed = |at: usize, value: u8| {
        let mut bytes = good;
        bytes[at] = value;
        bytes
    };
    refused(&changed(0, b'f'), "does not begin");
    refused(&changed(8, 2), "version 2");
    for path in [0, 5, 255] {
        refused(&changed(12, path), &format!("path {path}"));
    }
    for location in [0, 4] {
        refused(&changed(32, location), &format!("location {location}"));
    }
}

#[test]
fn absurd_sizes_are_refused() {
    let good = samples()[4].encode();
    let sized = |bytes: u64, offset: u64| {
        let mut raw = good;
        raw[16..24].copy_from_slice(&bytes.to_le_bytes());
        raw[24..32].copy_from_slice(&offset.to_le_bytes());
        raw
    };
    assert!(Descriptor::decode(&sized(1, (1 << 57) - 1)).is_ok());
    for (bytes, offset) in
        [(0, 0), (u64::MAX, 0), ((1 << 57) + 1, 0), (1, 1 << 57), (1, u64::MAX), (u64::MAX, u64::MAX)]
    {
        refused(&sized(bytes, offset), &format!("{bytes} bytes at offset {offset}"));
    }
}

#[test]
fn what_a_path_does_not_use_is_zero() {
    for descriptor in samples() {
        let good = descriptor.encode();
        for at in 0..DESCRIPTOR_BYTES {
            let mut bytes = good;
            bytes[at] ^= 0x40;
            // Other bytes give another descriptor or none, never the same one.
            assert!(
                Descriptor::decode(&bytes).is_ok_and(|other| other != descriptor)
                    || Descriptor::decode(&bytes).is_err()
            );
        }
        for at in 152..DESCRIPTOR_BYTES {
            let mut bytes = good;
            bytes[at] = 1;
            refused(&bytes, "zeros belong");
        }
    }
    let mut nil = samples()[2].encode();
    nil[72..88].fill(0);
    refused(&nil, "zeros");
}

#[test]
fn damaged_descriptors_are_refused_or_say_what_their_bytes_say() {
    let (samples, mut random) = (samples(), Random(1));
    for case in 0..10_000 {
        let mut bytes = samples[case % samples.len()].encode().to_vec();
        damage(&mut bytes, &mut random);
        if let Ok(descriptor) = Descriptor::decode(&bytes) {
            assert_eq!(descriptor.encode(), bytes[..], "case {case}");
        }
    }
}
