//! Whether an entry of the log may be something that a client wrote. Only what is known to be etcd's own is not.

use super::fields::{Value, all, bytes};

/// The kinds of entries that change the membership.
const CONFIGURATION: [u64; 2] = [1, 2];

/// Fields of a request that etcd makes by itself: the cluster's version, and a member's attributes.
const OWN: [u64; 2] = [1300, 1301];
/// Fields of a request that say who asks and with which number.
const HEADER: [u64; 2] = [1, 100];
/// The field of a request that holds one of the older kind.
const OLDER: u64 = 2;

/// Whether an entry may be a client's. `false` only for changes of the membership, empty entries, and requests that
/// etcd is known to make by itself.
pub(super) fn may_be_a_clients(kind: Option<u64>, data: Option<&[u8]>) -> bool {
    if kind.is_some_and(|kind| CONFIGURATION.contains(&kind)) {
        return false;
    }
    // A new leader begins its term with an entry that holds nothing.
    let Some(data) = data.filter(|data| !data.is_empty()) else {
        return false;
    };
    !is_own(data)
}

/// Whether etcd makes such a request by itself, in all its parts. One that cannot be parsed is taken for a client's.
fn is_own(request: &[u8]) -> bool {
    if is_own_older(request) {
        return true;
    }
    let Some(fields) = all(request) else {
        return false;
    };
    let mut asked = fields.into_iter().filter(|(field, _)| !HEADER.contains(field));
    let is_own = |(field, value): (u64, Value<'_>)| match value {
        Value::Bytes(inner) if field == OLDER => is_own_older(inner),
        Value::Bytes(_) => OWN.contains(&field),
        Value::Number(_) | Value::Fixed => false,
    };
    asked.next().is_some_and(is_own) && asked.all(is_own)
}

/// A request of the older kind: a path that is put. Up to 3.3 it stands alone, up to 3.5 within a newer one.
fn is_own_older(request: &[u8]) -> bool {
    const METHOD: u64 = 2;
    const PATH: u64 = 3;
    bytes(request, METHOD) == Some(b"PUT") && bytes(request, PATH).is_some_and(is_own_path)
}

/// `/0/version` and `/0/members/ID/attributes`.
fn is_own_path(path: &[u8]) -> bool {
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    match parts.as_slice() {
        [b"", b"0", b"version"] => true,
        [b"", b"0", b"members", id, b"attributes"] => !id.is_empty() && id.iter().all(u8::is_ascii_hexdigit),
        _ => false,
    }
}
