//! What an apply sends. Sends nothing itself.

use serde_json::Value;

use super::agreed::{Agreed, sum};
use super::what::What;
use super::{Error, Writable, set};
use crate::drift::{self, APPLIED};

/// What to apply over an object as it is stored; nothing if all of it is there.
pub(super) fn change<K: Writable>(
    agreed: &Agreed,
    what: &What,
    current: Option<&K>,
    desired: &K,
) -> Result<Option<Value>, Error> {
    let known = current.zip(sum(desired));
    if known.is_some_and(|(current, sum)| agreed.has(&what.key, current, sum)) {
        return Ok(None);
    }
    let mut wanted = wanted(what, desired)?;
    if let Some(current) = current {
        if !drift::needs_apply(&what.json(current)?, &wanted) {
            if let Some((current, sum)) = known {
                agreed.note(&what.key, current, sum);
            }
            return Ok(None);
        }
        let meta = current.meta();
        set(&mut wanted, "uid", meta.uid.as_deref());
        set(&mut wanted, "resourceVersion", meta.resource_version.as_deref());
    }
    Ok(Some(wanted))
}

/// What is wanted of an object, with the hash by which that is known again.
pub(super) fn wanted<K: Writable>(what: &What, desired: &K) -> Result<Value, Error> {
    let mut wanted = what.json(desired)?;
    what.trim_for_apply(&mut wanted)?;
    let hash = drift::hash(&wanted);
    wanted["metadata"]["annotations"][APPLIED] = Value::String(hash);
    Ok(wanted)
}
