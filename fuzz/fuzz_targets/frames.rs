//! Decodes arbitrary bytes as a stored object, in chunks of any size. Nothing may panic, and only complete
//! frames may be released.
#![no_main]

use etcd_operator_snapshot::frames::{Decoder, KeyId, KeyRing, MasterKey};
use libfuzzer_sys::fuzz_target;

fn keys() -> KeyRing {
    let mut keys = KeyRing::default();
    if let (Ok(id), Ok(key)) = (KeyId::new("2026"), MasterKey::new(&[7; 32])) {
        keys.add(id, key);
    }
    keys
}

fuzz_target!(|input: (u16, &[u8])| {
    let (piece, bytes) = input;
    let mut decoder = Decoder::new(keys());
    let mut out = Vec::new();
    for piece in bytes.chunks(usize::from(piece).max(1)) {
        if decoder.push(piece, &mut out).is_err() {
            return;
        }
        out.clear();
    }
    let _ = decoder.finish();
});
