//! Under whom members run: what the restricted Pod Security Standard asks for, unless the user says otherwise.

use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};

/// A user without name or rights, the same as in images without a shell.
const NON_ROOT_ID: i64 = 65532;

/// The security context of the pod: the fields that the user sets, and the operator's defaults for the others.
pub(super) fn pod(wanted: Option<&PodSecurityContext>) -> PodSecurityContext {
    let wanted = wanted.cloned().unwrap_or_default();
    let is_root = wanted.run_as_user == Some(0);
    PodSecurityContext {
        // Somebody who asks for root must not be stopped by our default.
        run_as_non_root: wanted.run_as_non_root.or(Some(!is_root)),
        run_as_user: wanted.run_as_user.or(Some(NON_ROOT_ID)),
        run_as_group: wanted.run_as_group.or(Some(NON_ROOT_ID)),
        fs_group: wanted.fs_group.or(Some(NON_ROOT_ID)),
        fs_group_change_policy: wanted
            .fs_group_change_policy
            .clone()
            .or_else(|| Some("OnRootMismatch".to_owned())),
        seccomp_profile: wanted.seccomp_profile.clone().or_else(|| {
            Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            })
        }),
        ..wanted
    }
}

/// The security context of each of the operator's containers.
pub(super) fn container() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            drop: Some(vec!["ALL".to_owned()]),
            ..Capabilities::default()
        }),
        ..SecurityContext::default()
    }
}
