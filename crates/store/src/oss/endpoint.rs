//! Parses OSS endpoints in their usual forms: with or without a scheme, internal, prefixed with the bucket,
//! or a custom domain.

use std::net::IpAddr;

use crate::secret::InvalidConfig;

const SETTING: &str = "oss.endpoint";
const EXAMPLE: &str = "for example: https://oss-cn-hangzhou.aliyuncs.com";
const VENDOR: &str = ".aliyuncs.com";

/// The address of requests and the region of their signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The scheme and host for messages.
    pub display: String,
    /// The address that object names are appended to. It includes the bucket and has no trailing slash.
    pub base: String,
    /// The region of the signature.
    pub region: String,
}

impl Endpoint {
    /// Parses an endpoint. Without a scheme it is HTTPS.
    pub fn parse(text: &str, bucket: &str, region: Option<&str>) -> Result<Self, InvalidConfig> {
        let bad = |problem: &str| InvalidConfig::new(SETTING, format!("{problem}; {EXAMPLE}"));
        let text = text.trim().trim_end_matches('/');
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None => ("https".to_owned(), text),
        };
        if scheme != "https" && scheme != "http" {
            return Err(bad("must begin with https:// or http://, or be the host alone"));
        }
        let authority: http::uri::Authority = rest.parse().map_err(|_| bad("contains no host"))?;
        if rest.contains('@') || authority.host().is_empty() {
            return Err(bad("must be a host with an optional port, and nothing else"));
        }
        let port = authority
            .port_u16()
            .map_or_else(String::new, |port| format!(":{port}"));
        let mut host = authority.host().to_ascii_lowercase();
        if host.ends_with(VENDOR)
            && let Some(without) = host.strip_prefix(&format!("{bucket}."))
        {
            host = without.to_owned();
        }
        let region = match (region, region_from_host(&host)) {
            (Some(region), _) => region.strip_prefix("oss-").unwrap_or(region).to_owned(),
            (None, Some(region)) => region,
            (None, None) => {
                let problem = format!(
                    "must be set, because the endpoint {host} does not contain it; for example: cn-hangzhou"
                );
                return Err(InvalidConfig::new("oss.region", problem));
            }
        };
        let display = format!("{scheme}://{host}{port}");
        let base = if host.ends_with(VENDOR) {
            check_bucket(bucket)?;
            format!("{scheme}://{bucket}.{host}{port}")
        } else if is_ip_or_localhost(&host) {
            // An IP address cannot be prefixed with the bucket.
            format!("{display}/{bucket}")
        } else {
            // A custom domain is bound to one bucket.
            display.clone()
        };
        Ok(Self {
            display,
            base,
            region,
        })
    }
}

/// Extracts the region from a host name. `oss-cn-hangzhou`, `oss-cn-hangzhou-internal` and `cn-hangzhou.oss`
/// contain one; `oss-accelerate` does not.
fn region_from_host(host: &str) -> Option<String> {
    let name = host.strip_suffix(VENDOR)?;
    let region = match name
        .strip_suffix(".oss")
        .or_else(|| name.strip_suffix(".oss-internal"))
    {
        Some(region) => region,
        None => name.strip_prefix("oss-")?,
    };
    let region = region.strip_suffix("-internal").unwrap_or(region);
    let is_region = !region.is_empty() && !region.contains('.') && !region.starts_with("accelerate");
    is_region.then(|| region.to_owned())
}

fn is_ip_or_localhost(host: &str) -> bool {
    host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

fn check_bucket(bucket: &str) -> Result<(), InvalidConfig> {
    let is_valid = (3..=63).contains(&bucket.len())
        && bucket
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        && !bucket.starts_with('-')
        && !bucket.ends_with('-');
    if is_valid {
        return Ok(());
    }
    let problem = "must begin with a bucket of 3 to 63 lower-case letters, digits and hyphens; for example: my-bucket/etcd";
    Err(InvalidConfig::new("oss.path", problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, region: Option<&str>) -> (String, String) {
        let endpoint = Endpoint::parse(text, "my-bucket", region).expect(text);
        (endpoint.base, endpoint.region)
    }

    #[test]
    fn every_usual_form_of_an_endpoint_is_parsed() {
        for (text, region, base, signed) in [
            (
                "http://oss-cn-hangzhou.aliyuncs.com",
                None,
                "http://my-bucket.oss-cn-hangzhou.aliyuncs.com",
                "cn-hangzhou",
            ),
            (
                "oss-us-west-1-internal.aliyuncs.com/",
                None,
                "https://my-bucket.oss-us-west-1-internal.aliyuncs.com",
                "us-west-1",
            ),
            (
                "https://my-bucket.oss-cn-beijing.aliyuncs.com",
                None,
                "https://my-bucket.oss-cn-beijing.aliyuncs.com",
                "cn-beijing",
            ),
            (
                "HTTPS://cn-hangzhou.oss.aliyuncs.com",
                None,
                "https://my-bucket.cn-hangzhou.oss.aliyuncs.com",
                "cn-hangzhou",
            ),
            (
                "oss-accelerate.aliyuncs.com",
                Some("oss-cn-shanghai"),
                "https://my-bucket.oss-accelerate.aliyuncs.com",
                "cn-shanghai",
            ),
            (
                "https://backups.example.com",
                Some("eu-1"),
                "https://backups.example.com",
                "eu-1",
            ),
            (
                "http://127.0.0.1:9000",
                Some("x"),
                "http://127.0.0.1:9000/my-bucket",
                "x",
            ),
            (
                "https://localhost:9000",
                Some("x"),
                "https://localhost:9000/my-bucket",
                "x",
            ),
        ] {
            assert_eq!(read(text, region), (base.to_owned(), signed.to_owned()), "{text}");
        }
    }

    #[test]
    fn an_invalid_endpoint_or_missing_region_is_refused_and_the_setting_named() {
        for bad in [
            "",
            "ftp://a",
            "https://user:pw@oss-cn-hangzhou.aliyuncs.com",
            "https://a b",
            "https://a/b/c",
        ] {
            let refused = Endpoint::parse(bad, "my-bucket", Some("x")).expect_err(bad);
            assert_eq!(refused.setting, "oss.endpoint", "{bad}");
            assert!(!refused.to_string().contains("pw"));
        }
        for unclear in ["oss-accelerate.aliyuncs.com", "https://backups.example.com"] {
            let refused = Endpoint::parse(unclear, "my-bucket", None).expect_err(unclear);
            assert_eq!(refused.setting, "oss.region");
        }
        let refused = Endpoint::parse("oss-cn-hangzhou.aliyuncs.com", "My_Bucket", None).expect_err("bucket");
        assert_eq!(refused.setting, "oss.path");
    }
}
