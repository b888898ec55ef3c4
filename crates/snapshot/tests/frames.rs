//! Tests of stored objects: the decoded snapshot equals the encoded one for all chunk sizes, and every
//! manipulation is detected with its own error.

use etcd_operator_api::contract::Frame;
use etcd_operator_snapshot::frames::{
    Compression, DecodeError, Decoder, Encoder, FrameIndex, FrameReader, Header, KeyId, KeyRing, MasterKey,
    ObjectFormat, Salt,
};
use proptest::prelude::*;

const FRAME_SIZE: u32 = 256;
const OVERHEAD: usize = 32;

fn key(byte: u8) -> MasterKey {
    MasterKey::new(&[byte; 32]).expect("32 bytes")
}

fn id(id: &str) -> KeyId {
    KeyId::new(id).expect("an id")
}

fn ring() -> KeyRing {
    let mut ring = KeyRing::default();
    ring.add(id("spring"), key(1));
    ring.add(id("summer"), key(2));
    ring
}

fn encode(plain: &[u8], compression: Compression, sealed: bool, pieces: usize) -> (Vec<u8>, Vec<Frame>) {
    let master = key(2);
    let form = ObjectFormat {
        compression,
        seal: sealed.then(|| (id("summer"), &master, Salt([9; 32]))),
        frame: FRAME_SIZE,
    };
    let mut out = Vec::new();
    let mut encoder = Encoder::new(form, &mut out).expect("an encoder");
    for piece in plain.chunks(pieces) {
        encoder.push(piece, &mut out).expect("a piece");
    }
    let frames = encoder.finish(&mut out).expect("the end");
    (out, frames)
}

fn decode(object: &[u8], keys: KeyRing, pieces: usize) -> Result<Vec<u8>, DecodeError> {
    let (mut decoder, mut out) = (Decoder::new(keys), Vec::new());
    for piece in object.chunks(pieces) {
        decoder.push(piece, &mut out)?;
    }
    decoder.finish().map(|()| out)
}

/// Bytes that are compressible and differ everywhere.
fn sample(length: u32) -> Vec<u8> {
    (0..length)
        .flat_map(|n| (n / 4).to_be_bytes())
        .take(length as usize)
        .collect()
}

const FORMS: [(Compression, bool); 4] = [
    (Compression::None, false),
    (Compression::None, true),
    (Compression::Zstd, false),
    (Compression::Zstd, true),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_decoded_snapshot_equals_the_encoded_one(
        plain in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..1500),
            prop::collection::vec(0_u8..3, 0..1500),
            (0_u32..5).prop_map(|frames| sample(frames * FRAME_SIZE)),
        ],
        form in prop::sample::select(FORMS.to_vec()),
        into in 1_usize..700,
        out_of in 1_usize..700,
    ) {
        let (object, frames) = encode(&plain, form.0, form.1, into);
        prop_assert_eq!(&encode(&plain, form.0, form.1, 1), &(object.clone(), frames.clone()));
        let decoded = decode(&object, ring(), out_of);
        prop_assert_eq!(decoded.as_ref(), Ok(&plain));
        let index = FrameIndex::new(&frames, object.len() as u64).expect("the index fits");
        prop_assert_eq!(index.snapshot_size(), plain.len() as u64);
        prop_assert!(object.len() <= plain.len() + 100 + frames.len() * OVERHEAD);
    }

    #[test]
    fn any_range_is_read_with_the_index(from in 0_u64..2100, length in 0_u64..900, form in prop::sample::select(FORMS.to_vec())) {
        let plain = sample(2000);
        let (object, frames) = encode(&plain, form.0, form.1, 333);
        let index = FrameIndex::new(&frames, object.len() as u64).expect("the index fits");
        let head = Header::parse(&object).expect("a head").expect("all of it");
        prop_assert_eq!(index.header_size(), head.length() as u64);
        let mut reader = FrameReader::new(head, &ring()).expect("the key");
        let (mut got, holding) = (Vec::new(), index.frames_for(from..from + length));
        for number in holding.clone() {
            let (frame, is_last) = index.frame(number).expect("it exists");
            let start = usize::try_from(frame.offset).expect("small");
            let stored = object[start..start + frame.stored as usize].to_vec();
            got.extend(reader.open(number, is_last, stored).expect("it opens"));
        }
        let end = (from + length).min(2000);
        if from < end {
            let skip = usize::try_from(from - index.frame_start(holding.start)).expect("small");
            let wanted = &plain[usize::try_from(from).expect("small")..usize::try_from(end).expect("small")];
            prop_assert_eq!(&got[skip..skip + wanted.len()], wanted);
            prop_assert!(got.len() < wanted.len() + 2 * FRAME_SIZE as usize);
        } else {
            prop_assert!(holding.is_empty());
        }
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic_and_are_no_object(mut bytes in prop::collection::vec(any::<u8>(), 0..600), with_head in any::<bool>()) {
        if with_head {
            let (object, _) = encode(&[], Compression::Zstd, false, 1);
            bytes.splice(0..0, object[..81].iter().copied());
        }
        prop_assert!(decode(&bytes, ring(), 64).is_err());
    }
}

#[test]
fn every_flipped_bit_is_detected() {
    for (compression, sealed) in FORMS {
        let plain = sample(600);
        let (object, _) = encode(&plain, compression, sealed, 100);
        for place in 0..object.len() {
            for bit in 0..8 {
                let mut flipped = object.clone();
                flipped[place] ^= 1 << bit;
                let decoded = decode(&flipped, ring(), 1000);
                assert!(
                    decoded.is_err(),
                    "byte {place}, bit {bit} of {compression:?}, sealed: {sealed}"
                );
            }
        }
    }
}

#[test]
fn no_data_of_a_damaged_frame_is_released() {
    let (mut object, frames) = encode(&sample(600), Compression::None, true, 100);
    let second = usize::try_from(frames[1].offset).expect("small");
    object[second + 20] ^= 1;
    let (mut decoder, mut out) = (Decoder::new(ring()), Vec::new());
    let result = decoder.push(&object, &mut out);
    assert_eq!(result, Err(DecodeError::Damaged { frame: 1 }));
    assert_eq!(out, sample(600)[..FRAME_SIZE as usize]);
}

#[test]
fn a_truncated_object_is_detected_at_every_length() {
    for (compression, sealed) in FORMS {
        let (object, frames) = encode(&sample(600), compression, sealed, 100);
        for length in 0..object.len() {
            let wanted = frames
                .iter()
                .filter(|frame| frame.offset + u64::from(frame.stored) <= length as u64);
            let frame = u32::try_from(wanted.count()).expect("few");
            let expected = match length as u64 {
                0 => DecodeError::NotFrames,
                length if length < frames[0].offset => DecodeError::Header {
                    why: "it is incomplete",
                },
                _ => DecodeError::Truncated { frame },
            };
            assert_eq!(decode(&object[..length], ring(), 50), Err(expected), "{length}");
        }
    }
}

#[test]
fn swapped_repeated_and_missing_frames_are_distinguished() {
    for (compression, sealed) in FORMS {
        let plain = sample(4 * FRAME_SIZE - 6);
        let (object, frames) = encode(&plain, compression, sealed, 100);
        let part = |number: usize| {
            let from = usize::try_from(frames[number].offset).expect("small");
            object[from..from + frames[number].stored as usize].to_vec()
        };
        let head = object[..usize::try_from(frames[0].offset).expect("small")].to_vec();
        let joined = |numbers: &[usize]| {
            let mut object = head.clone();
            for number in numbers {
                object.extend(part(*number));
            }
            decode(&object, ring(), 77)
        };
        assert_eq!(joined(&[0, 1, 2, 3]), Ok(plain.clone()));
        let again = |found, expected| Err(DecodeError::Repeated { found, expected });
        let skipped = |found, expected| Err(DecodeError::Skipped { found, expected });
        assert_eq!(joined(&[0, 2, 1, 3]), skipped(2, 1), "swapped");
        assert_eq!(joined(&[0, 1, 1, 2, 3]), again(1, 2), "doubled");
        assert_eq!(joined(&[0, 1, 3]), skipped(3, 2), "left out");
        assert_eq!(joined(&[3]), skipped(3, 0), "only the last");
        assert_eq!(
            joined(&[0, 1, 2]),
            Err(DecodeError::Truncated { frame: 3 }),
            "without the last"
        );
        assert_eq!(
            joined(&[0, 1, 2, 3, 3]),
            Err(DecodeError::Trailing),
            "the last twice"
        );
        let mut trailing = object.clone();
        trailing.push(0);
        assert_eq!(decode(&trailing, ring(), 99), Err(DecodeError::Trailing));
    }
}

#[test]
fn a_frame_of_another_object_is_rejected() {
    let master = key(2);
    for sealed in [false, true] {
        let [one, other] = [3, 4].map(|salt| {
            let seal = sealed.then(|| (id("summer"), &master, Salt([salt; 32])));
            // Without encryption, the headers differ in the compression.
            let is_other = !sealed && salt == 4;
            let compression = if is_other {
                Compression::Zstd
            } else {
                Compression::None
            };
            let form = ObjectFormat {
                compression,
                seal,
                frame: FRAME_SIZE,
            };
            let mut out = Vec::new();
            let mut encoder = Encoder::new(form, &mut out).expect("an encoder");
            let plain: Vec<u8> = (0..=255).collect();
            encoder.push(&plain, &mut out).expect("a piece");
            encoder.finish(&mut out).expect("the end");
            out
        });
        assert_eq!(one.len(), other.len());
        let head = one.len() - OVERHEAD - 256;
        let mut mixed = one[..head].to_vec();
        mixed.extend(&other[head..]);
        assert_eq!(
            decode(&mixed, ring(), 99),
            Err(DecodeError::Damaged { frame: 0 }),
            "sealed: {sealed}"
        );
    }
}

#[test]
fn missing_unknown_and_wrong_keys_are_distinguished() {
    let (object, _) = encode(&sample(100), Compression::Zstd, true, 100);
    let named = || "summer".to_owned();
    let none = decode(&object, KeyRing::default(), 10);
    assert_eq!(none, Err(DecodeError::NoKey { id: named() }));
    let mut others = KeyRing::default();
    others.add(id("winter"), key(2));
    assert_eq!(
        decode(&object, others.clone(), 10),
        Err(DecodeError::UnknownKey { id: named() })
    );
    others.add(id("summer"), key(3));
    let wrong = decode(&object, others, 10);
    assert_eq!(wrong, Err(DecodeError::WrongKey { id: named() }));
    let text = wrong.expect_err("wrong").to_string();
    assert_eq!(
        text,
        "the key \"summer\" is not the one the object was encrypted with"
    );
    // An object that is not encrypted needs no key.
    let (open, _) = encode(&sample(100), Compression::Zstd, false, 100);
    assert_eq!(decode(&open, KeyRing::default(), 10), Ok(sample(100)));
}

#[test]
fn the_manifest_describes_the_encryption() {
    for (compression, sealed) in FORMS {
        let (object, _) = encode(b"x", compression, sealed, 1);
        let head = Header::parse(&object).expect("a head").expect("all of it");
        assert_eq!((head.compression, head.key.is_some()), (compression, sealed));
        let sealing = head
            .sealing()
            .map(|sealing| (sealing.cipher, sealing.key_id, sealing.salt));
        let wanted = ("AES-256-GCM".to_owned(), "summer".to_owned(), "09".repeat(32));
        assert_eq!(sealing, sealed.then_some(wanted));
    }
}

#[test]
fn plain_snapshots_and_newer_versions_are_recognized() {
    assert_eq!(
        decode(b"a plain snapshot", ring(), 5),
        Err(DecodeError::NotFrames)
    );
    let (mut object, _) = encode(b"x", Compression::None, false, 1);
    object[9] = 2;
    assert_eq!(
        decode(&object, ring(), 5),
        Err(DecodeError::Version { found: 2, known: 1 })
    );
}

#[test]
fn equal_frames_are_encrypted_differently() {
    let plain = vec![7; 2 * FRAME_SIZE as usize];
    let (object, frames) = encode(&plain, Compression::None, true, 100);
    let payload = |frame: &Frame| {
        let from = usize::try_from(frame.offset).expect("small") + 16;
        object[from..from + FRAME_SIZE as usize].to_vec()
    };
    assert_ne!(payload(&frames[0]), payload(&frames[1]));
    assert!(
        !object.windows(16).any(|window| window == [7; 16]),
        "it is not hidden"
    );
}

#[test]
fn an_inconsistent_index_is_refused() {
    let (object, frames) = encode(&sample(600), Compression::None, false, 100);
    let length = object.len() as u64;
    assert!(FrameIndex::new(&frames, length).is_ok());
    let broken = |change: &dyn Fn(&mut Vec<Frame>)| {
        let mut frames = frames.clone();
        change(&mut frames);
        FrameIndex::new(&frames, length)
            .map(|_| ())
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(broken(&Vec::clear), "the manifest lists no frames");
    assert!(broken(&|frames| frames[1].offset += 1).contains("frame 1 of the manifest does not begin"));
    assert!(
        broken(&|frames| frames[1].plain -= 1).contains("frame 1 of the manifest has an impossible size")
    );
    assert!(broken(&|frames| frames[2].plain = 1 << 20).contains("frame 2"));
    assert!(broken(&|frames| frames[0].stored = 3).contains("frame 0"));
    assert!(broken(&|frames| frames.truncate(2)).contains("of an object of"));
}
