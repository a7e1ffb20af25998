use futures_util::FutureExt;
use kvcore::ClusterId;
use placement::{Epoch, NodeId};
use proptest::prelude::*;

use crate::transport::frame::{
    BODY_BYTES_MAX, Frame, FrameError, FrameKind, FrameReader, GREETING_BYTES_MAX, HEADER_BYTES,
    Sender, append_frame,
};

const SENDER: Sender = Sender {
    cluster: Some(ClusterId(0x0102_0304)),
    node: NodeId::from_u128(0x0a0b),
    epoch: Epoch::new(7),
};

fn frame(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    append_frame(&mut bytes, kind, &SENDER, |buffer| buffer.extend_from_slice(body)).unwrap();
    bytes
}

/// Reads everything that is in `bytes`, up to the first error.
fn read(bytes: &[u8]) -> (Vec<Frame>, Option<FrameError>) {
    let mut reader = FrameReader::new(bytes);
    let mut frames = Vec::new();
    loop {
        match reader.next().now_or_never().expect("memory is always ready") {
            Ok(Some(frame)) => frames.push(frame),
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        }
    }
}

#[test]
fn the_bytes_of_a_frame_do_not_change() {
    let bytes = frame(FrameKind::Requests, b"body");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = concat!(
        "726b7670", // magic
        "0100",     // version
        "04",       // kind
        "00",
        "04030201000000000000000000000000", // cluster
        "0b0a0000000000000000000000000000", // node
        "0700000000000000",                 // epoch
        "04000000",                         // length
    );
    assert_eq!(&hex[..golden.len()], golden);
    assert_eq!(&hex[golden.len()..golden.len() + 16], "df1728c5c7f84d7e");
    assert_eq!(&bytes[HEADER_BYTES..], b"body");
}

#[test]
fn frames_come_out_as_they_went_in() {
    let mut bytes = frame(FrameKind::Hello, b"first");
    bytes.extend(frame(FrameKind::Messages, b""));
    let unfounded = Sender { cluster: None, ..SENDER };
    append_frame(&mut bytes, FrameKind::Answers, &unfounded, |buffer| buffer.push(9)).unwrap();
    let (frames, error) = read(&bytes);
    assert!(error.is_none());
    let seen: Vec<_> = frames.iter().map(|it| (it.kind, it.sender, it.body.to_vec())).collect();
    assert_eq!(
        seen,
        [
            (FrameKind::Hello, SENDER, b"first".to_vec()),
            (FrameKind::Messages, SENDER, Vec::new()),
            (FrameKind::Answers, unfounded, vec![9]),
        ]
    );
}

#[test]
fn a_body_longer_than_its_kind_may_be_is_neither_written_nor_read() {
    let mut bytes = Vec::new();
    let long = |buffer: &mut Vec<u8>| buffer.resize(buffer.len() + GREETING_BYTES_MAX + 1, 0);
    let refused = append_frame(&mut bytes, FrameKind::Hello, &SENDER, long);
    assert!(matches!(refused, Err(FrameError::TooLong { .. })));
    assert!(bytes.is_empty());
    for claimed in [GREETING_BYTES_MAX + 1, BODY_BYTES_MAX + 1, u32::MAX as usize] {
        let mut hello = frame(FrameKind::Hello, b"");
        hello[48..52].copy_from_slice(&u32::try_from(claimed).unwrap().to_le_bytes());
        let (_, error) = read(&hello);
        assert!(matches!(error, Some(FrameError::TooLong { bytes }) if bytes == claimed));
    }
}

#[test]
fn a_claimed_length_takes_no_memory_before_its_bytes_arrive() {
    let mut claim = frame(FrameKind::Messages, b"");
    claim[48..52].copy_from_slice(&u32::try_from(BODY_BYTES_MAX).unwrap().to_le_bytes());
    let mut reader = FrameReader::new(&claim[..]);
    let ended = reader.next().now_or_never().expect("memory is always ready");
    assert!(matches!(ended, Err(FrameError::Truncated)));
    assert!(reader.buffered_capacity() <= 2 << 20, "{}", reader.buffered_capacity());
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read(&bytes);
        // The same behind a header that is right up to there.
        let mut framed = frame(FrameKind::Messages, &bytes);
        framed.extend(&bytes);
        let (frames, _) = read(&framed);
        prop_assert_eq!(&frames[0].body[..], &bytes[..]);
    }

    #[test]
    fn a_flipped_bit_anywhere_is_noticed(
        body in prop::collection::vec(any::<u8>(), 0..200),
        place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let mut bytes = frame(FrameKind::Answers, &body);
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        let (frames, error) = read(&bytes);
        prop_assert!(frames.is_empty() && error.is_some());
    }

    #[test]
    fn a_frame_cut_short_is_no_frame(body in prop::collection::vec(any::<u8>(), 0..200), cut in any::<prop::sample::Index>()) {
        let bytes = frame(FrameKind::Requests, &body);
        let cut = 1 + cut.index(bytes.len() - 1);
        let (frames, error) = read(&bytes[..cut]);
        prop_assert!(frames.is_empty());
        prop_assert!(matches!(error, Some(FrameError::Truncated)));
    }
}
