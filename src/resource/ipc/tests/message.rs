use super::{Random, damage, packet};
use crate::resource::ipc::Key;
use crate::resource::ipc::message::{BATCH, LONGEST, Message, Record, Why};
use crate::resource::ipc::pieces::{Form, Shape};
use uuid::Uuid;

fn samples() -> Vec<Message> {
    let record = Record { bytes: 1 << 21, blob: [0; 64] };
    vec![
        Message::Ask { key: Key(Uuid::from_bytes([7; 16])) },
        Message::Found(Shape { offset: 1, bytes: 2, span: 4096, count: 1, form: Form::Fd }),
        Message::Found(Shape { offset: u64::MAX, bytes: 0, span: 1, count: u64::MAX, form: Form::Fabric }),
        Message::Next { first: 9, most: 64 },
        Message::Batch { first: 0, records: vec![record; BATCH] },
        Message::Batch { first: 3, records: Vec::new() },
        Message::Batch { first: 64, records: vec![Record { bytes: 1, blob: [3; 64] }] },
        Message::Refused { why: Why::NotFound, text: String::new() },
        Message::Refused { why: Why::NotPermitted, text: "why".into() },
        Message::Refused { why: Why::Malformed, text: "ü".repeat(200) },
        Message::Refused { why: Why::Failed, text: "x".repeat(400) },
    ]
}

#[test]
fn what_was_encoded_is_decoded_and_fits_a_packet() {
    for message in samples() {
        let packet = packet(&message);
        assert!(packet.len() <= LONGEST);
        assert_eq!(Message::decode(&packet), Ok(message));
    }
    assert_eq!(packet(&samples()[4]).len(), LONGEST);
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let text = format!("x{}", "ü".repeat(300));
    let decoded = Message::decode(&packet(&Message::Refused { why: Why::Failed, text: text.clone() }));
    assert_eq!(decoded, Ok(Message::Refused { why: Why::Failed, text: text[..399].into() }));
}

#[test]
fn every_shortened_and_lengthened_message_is_refused() {
    for message in samples() {
        let whole = packet(&message);
        // A text or a list may end earlier; then it is another message.
        for length in 0..whole.len() {
            assert_ne!(Message::decode(&whole[..length]).as_ref(), Ok(&message));
        }
        if !matches!(message, Message::Refused { .. } | Message::Batch { .. }) {
            assert!((0..whole.len()).all(|length| Message::decode(&whole[..length]).is_err()));
            assert!(Message::decode(&[&whole[..], &[0]].concat()).unwrap_err().contains("1 bytes too many"));
        }
    }
    let mut other = packet(&samples()[0]);
    other[8] = 3;
    assert!(Message::decode(&other).unwrap_err().contains("version 3"));
}

#[test]
fn damaged_messages_are_refused_or_say_what_their_bytes_say() {
    let (samples, mut random) = (samples(), Random(2));
    for case in 0..10_000 {
        let mut bytes = packet(&samples[case % samples.len()]);
        damage(&mut bytes, &mut random);
        if let Ok(message) = Message::decode(&bytes) {
            assert_eq!(packet(&message), bytes, "case {case}");
        }
    }
}
