//! A member that a person gives up by annotation: exactly that one is replaced, and once. Its ID names it, for IDs are
//! never given twice; whoever leads next knows from the status that it was done.

use etcd_operator_api::names::ANNOTATION_REPLACE;
use etcd_operator_etcd::id::MemberId;
use etcd_operator_etcd::membership::Known;

use super::{Proposal, Reason, Situation};
use crate::intent::{Cause, Replace, What};
use crate::memory::Memory;

/// Whether a person wants another member in the place of this one, and it was not done yet.
pub fn is_requested(situation: &Situation<'_>, id: MemberId) -> bool {
    let world = situation.world;
    let asked = world.replace.as_deref().and_then(|text| text.parse().ok());
    asked == Some(id) && world.memory.replaced != Some(id)
}

/// Notes that it was done, once the member is out.
pub fn note(situation: &Situation<'_>, memory: &mut Memory) {
    let intent = memory.intent.as_ref().map(|intent| &intent.what);
    if let (
        Some(What::Replace(Replace {
            id,
            cause: Cause::Requested,
            ..
        })),
        Some(known),
    ) = (intent, situation.known())
        && !known.members.contains_key(id)
    {
        memory.replaced = Some(*id);
    }
}

/// What is asked for and names nobody.
pub fn of_nobody(situation: &Situation<'_>, known: &Known) -> Option<Proposal> {
    let world = situation.world;
    let text = world.replace.as_deref()?;
    let why = match text.parse::<MemberId>() {
        Ok(id) if known.members.contains_key(&id) || world.memory.replaced == Some(id) => return None,
        Ok(_) => {
            let members = known.members.values();
            let named: Vec<_> = members
                .map(|member| format!("{} is {}", situation.call(member), member.id))
                .collect();
            format!("no member has this ID: {}", named.join(", "))
        }
        Err(error) => error.to_string(),
    };
    let text = format!(
        "The annotation {ANNOTATION_REPLACE} asks to replace {text}: {why}. Nothing is replaced; correct it or remove it."
    );
    Some(Proposal::idle(Reason::Blocked, text))
}
