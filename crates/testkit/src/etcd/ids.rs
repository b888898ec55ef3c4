//! IDs of members and clusters as etcd makes them: from peer URLs and token, and for members added later also from the
//! second. The same start always gives the same IDs, which is what makes an emptied disk dangerous.

use std::time::Duration;

use etcd_operator_etcd::id::{ClusterId, MemberId};
use etcd_operator_etcd::url::PeerUrl;

use crate::chance::mixed;

/// The ID of a member with these peer URLs.
pub(crate) fn member(urls: &[PeerUrl], token: &str, added: Option<Duration>) -> MemberId {
    let mut texts: Vec<String> = urls.iter().map(ToString::to_string).collect();
    texts.sort();
    texts.push(token.to_owned());
    texts.extend(added.map(|at| at.as_secs().to_string()));
    MemberId::new(hash(&texts.join("\n"))).expect("a hash is never zero")
}

/// The ID of the cluster that these members begin.
pub(crate) fn cluster(members: impl IntoIterator<Item = MemberId>) -> ClusterId {
    let mut ids: Vec<String> = members.into_iter().map(|id| id.to_string()).collect();
    ids.sort();
    ClusterId::new(hash(&ids.join("\n"))).expect("a hash is never zero")
}

/// FNV-1a, spread over all bits and never zero.
fn hash(text: &str) -> u64 {
    let sum = text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mixed(sum).max(1)
}
