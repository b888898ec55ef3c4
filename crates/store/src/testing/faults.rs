//! The faults that tests inject into uploads, and the phases in which they do.

/// A phase of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UploadPhase {
    /// Beginning the upload.
    Begin,
    /// Uploading part 1.
    FirstPart,
    /// Uploading the last part, which has this number.
    LastPart(u32),
    /// Completing the upload.
    Complete,
    /// ObjectBody the metadata of the object after the completion.
    AfterComplete,
}

impl UploadPhase {
    /// All phases of an upload with this number of parts.
    pub fn all(parts: u32) -> [Self; 5] {
        [
            Self::Begin,
            Self::FirstPart,
            Self::LastPart(parts),
            Self::Complete,
            Self::AfterComplete,
        ]
    }
}

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InjectedFault {
    /// The store responds with an internal error.
    Internal,
    /// The store throttles requests.
    Throttled,
    /// The store never responds.
    Slow,
    /// The connection breaks while the body is sent. The store does not execute the request.
    Broken,
    /// The store executes the request, and the connection breaks before the response.
    LostAnswer,
    /// The credentials have expired.
    Expired,
    /// The bucket is in another region.
    WrongRegion,
    /// The identity missing the permission.
    Forbidden,
    /// The bucket does not exist.
    NoBucket,
    /// No space or quota is left.
    Full,
}

impl InjectedFault {
    /// All faults.
    pub const ALL: [Self; 10] = [
        Self::Internal,
        Self::Throttled,
        Self::Slow,
        Self::Broken,
        Self::LostAnswer,
        Self::Expired,
        Self::WrongRegion,
        Self::Forbidden,
        Self::NoBucket,
        Self::Full,
    ];

    /// Whether a retry succeeds after the fault has ended.
    pub fn is_temporary(self) -> bool {
        matches!(
            self,
            Self::Internal | Self::Throttled | Self::Slow | Self::Broken | Self::LostAnswer
        )
    }
}

/// How often the fault is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occurrence {
    /// The first time only.
    Once,
    /// Every time.
    Always,
}
