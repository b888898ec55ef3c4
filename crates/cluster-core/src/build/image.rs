//! The images of a member's pod: etcd's, and the operator's own, which brings the program that guards it.

use std::{fmt, str::FromStr};

use etcd_operator_api::cluster::DefaultRepository;
use etcd_operator_etcd_types::version::Version;

use crate::desired::Image;

/// The image of etcd in this version. A whole reference in the spec stays as it is, whatever the version.
pub fn etcd_image(image: &Image, version: &Version, default: &DefaultRepository) -> String {
    match image {
        Image::Whole { reference, .. } => reference.clone(),
        Image::Tagged { repository, .. } => {
            let repository = repository.as_deref().unwrap_or(default.as_str());
            format!("{repository}:v{version}")
        }
    }
}

/// The operator's own image, from which the program is copied that starts etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorImage(String);

/// Why a text is no image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no reference of an image; for example: registry.example.com/etcd-operator:0.2.0")]
pub struct ImageError(String);

/// Why no member can be run: nobody said which image is the operator's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error(
    "the operator does not know its own image, which every member's pod needs: start `etcd-operator manager` with --operator-image=IMAGE or set OPERATOR_IMAGE, as the chart does"
)]
pub struct NoOperatorImage;

impl NoOperatorImage {
    /// The reason in conditions and Events.
    pub const REASON: &'static str = "NoOperatorImage";
}

impl OperatorImage {
    /// The reference as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for OperatorImage {
    type Err = ImageError;

    fn from_str(text: &str) -> Result<Self, ImageError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || text.len() > 512 || !text.chars().all(plain) {
            return Err(ImageError(text.to_owned()));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for OperatorImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_reference_and_nothing_else() {
        for good in [
            "etcd-operator:0.2.0",
            "localhost:5000/a/b@sha256:0123",
            "etcd-operator",
        ] {
            assert_eq!(
                good.parse::<OperatorImage>().map(|i| i.to_string()),
                Ok(good.into())
            );
        }
        for bad in ["", " ", "a b", "-a", "$(IMAGE)", "a\n"] {
            let why = bad.parse::<OperatorImage>().expect_err(bad).to_string();
            assert!(why.contains("for example: "), "{why}");
        }
    }
}
