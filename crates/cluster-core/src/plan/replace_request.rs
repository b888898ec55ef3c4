//! A member that a person gives up by annotation: exactly that one is replaced, and once. Its ID names it, for IDs are
//! never given twice; whoever leads next knows from the status that it was done.

use etcd_operator_api::names::ANNOTATION_REPLACE;
use etcd_operator_etcd_types::id::MemberId;
use etcd_operator_etcd_types::membership::Known;

use super::cluster_view::ClusterView;
use super::decision::{FlowDecision, Reason};
use crate::pending_operation::{Cause, Operation, Replace};
use crate::persisted_state::PersistedState;

/// Whether the annotation `replace` names this member ID, and that member was not replaced yet.
pub fn is_replace_requested(view: &ClusterView<'_>, id: MemberId) -> bool {
    let observed = view.observed;
    let asked = observed.replace.as_deref().and_then(|text| text.parse().ok());
    asked == Some(id) && observed.persisted.replaced != Some(id)
}

/// Records a requested replacement as done once etcd's membership no longer has the member's ID. Otherwise an annotation that
/// stays would be reported as naming no member.
pub fn note_completion(view: &ClusterView<'_>, persisted: &mut PersistedState) {
    let operation = persisted.pending.as_ref().map(|pending| &pending.operation);
    if let (
        Some(Operation::Replace(Replace {
            id,
            cause: Cause::Requested,
            ..
        })),
        Some(known),
    ) = (operation, view.known())
        && !known.members.contains_key(id)
    {
        persisted.replaced = Some(*id);
    }
}

/// Reports an annotation `replace` with something else than the ID of a member. `None` without the annotation, and for
/// the ID that was replaced last.
pub fn report_unknown_member(view: &ClusterView<'_>, known: &Known) -> Option<FlowDecision> {
    let observed = view.observed;
    let text = observed.replace.as_deref()?;
    let why = match text.parse::<MemberId>() {
        Ok(id) if known.members.contains_key(&id) || observed.persisted.replaced == Some(id) => return None,
        Ok(_) => {
            let members = known.members.values();
            let named: Vec<_> = members
                .map(|member| format!("{} is {}", view.display_name(member), member.id))
                .collect();
            format!("no member has this ID: {}", named.join(", "))
        }
        Err(error) => error.to_string(),
    };
    let text = format!(
        "The annotation {ANNOTATION_REPLACE} asks to replace {text}: {why}. Nothing is replaced; correct it or remove it."
    );
    Some(FlowDecision::without_operation(Reason::Blocked, text))
}
