//! Names that nobody can guess and nothing else has: the only chance there is here.

use std::fmt::Write as _;

use rustix::rand::{GetRandomFlags, getrandom};

/// A random name of 32 hexadecimal digits, from the kernel. Nonces must not be guessed.
pub fn draw() -> String {
    let mut bytes = [0_u8; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        // It fails only when interrupted, or where the kernel is older than anything that Kubernetes runs on.
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).unwrap_or(0);
    }
    bytes.iter().fold(String::with_capacity(32), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::draw;

    #[test]
    fn no_two_names_are_the_same() {
        let (one, other) = (draw(), draw());
        assert_eq!((one.len(), other.len()), (32, 32));
        assert_ne!(one, other);
    }
}
