//! The XML documents of OSS, GCS and Azure. Only the needed fields are parsed.

use jiff::Timestamp;
use quick_xml::escape::escape;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::backend::{ListedObject, Page, Part, UnfinishedUpload, UploadId};
use crate::error::{Class, Fault};

/// An error response.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ErrorBody {
    pub code: String,
    pub message: String,
    /// The endpoint of the region that the bucket is in.
    pub endpoint: Option<String>,
}

/// The response to beginning an upload.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct InitiateUploadResult {
    pub upload_id: String,
}

/// The response to completing an upload.
#[derive(Debug, Deserialize)]
pub(crate) struct CompleteUploadResult {
    #[serde(rename = "ETag")]
    pub etag: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ObjectList {
    contents: Vec<XmlObject>,
    is_truncated: bool,
    next_continuation_token: Option<String>,
    encoding_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct XmlObject {
    key: String,
    size: u64,
    last_modified: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct UploadList {
    upload: Vec<ListedUpload>,
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
    encoding_type: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ListedUpload {
    key: String,
    upload_id: String,
    initiated: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BlobListResult {
    blobs: BlobList,
    next_marker: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct BlobList {
    blob: Vec<Blob>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Blob {
    name: BlobName,
    properties: BlobProperties,
}

#[derive(Debug, Deserialize)]
struct BlobName {
    #[serde(rename = "@Encoded")]
    encoded: Option<bool>,
    #[serde(rename = "$text", default)]
    text: String,
}

#[derive(Debug, Deserialize)]
struct BlobProperties {
    #[serde(rename = "Content-Length")]
    length: u64,
    #[serde(rename = "Last-Modified")]
    modified: Option<String>,
}

/// Parses a document.
pub(crate) fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    quick_xml::de::from_str(text).map_err(|error| {
        let detail = format!("cannot parse the response: {error}");
        Fault::new(Class::Transient, detail)
    })
}

/// Parses a listing of objects.
pub(crate) fn parse_object_list(text: &str) -> Result<Page<ListedObject>, Fault> {
    let ObjectList {
        contents,
        is_truncated,
        next_continuation_token,
        encoding_type,
    } = parse(text)?;
    let items = contents.into_iter().map(|object| {
        Ok(ListedObject {
            name: decode_name(&object.key, encoding_type.as_deref())?,
            size: object.size,
            modified: object.last_modified.and_then(|time| time.parse().ok()),
        })
    });
    Ok(Page {
        items: items.collect::<Result<_, Fault>>()?,
        next: next_continuation_token.filter(|token| is_truncated && !token.is_empty()),
    })
}

/// Parses a listing of Azure blobs.
pub(crate) fn parse_blob_list(text: &str) -> Result<Page<ListedObject>, Fault> {
    let BlobListResult { blobs, next_marker } = parse(text)?;
    let items = blobs.blob.into_iter().map(|blob| {
        let encoding = blob.name.encoded.unwrap_or(false).then_some("url");
        // In Azure's encoding, a plus sign is a literal plus sign.
        let name = match encoding {
            Some(_) => blob.name.text.replace('+', "%2B"),
            None => blob.name.text,
        };
        Ok(ListedObject {
            name: decode_name(&name, encoding)?,
            size: blob.properties.length,
            modified: blob.properties.modified.as_deref().and_then(parse_http_time),
        })
    });
    Ok(Page {
        items: items.collect::<Result<_, Fault>>()?,
        next: next_marker.filter(|marker| !marker.is_empty()),
    })
}

/// Parses the date format of HTTP headers.
pub(crate) fn parse_http_time(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::parse(text).ok().map(|time| time.timestamp())
}

/// Parses a listing of unfinished uploads. `separator` joins the two markers of the next page.
pub(crate) fn parse_upload_list(text: &str, separator: char) -> Result<Page<UnfinishedUpload>, Fault> {
    let UploadList {
        upload,
        is_truncated,
        next_key_marker,
        next_upload_id_marker,
        encoding_type,
    } = parse(text)?;
    let encoding = encoding_type.as_deref();
    let items = upload.into_iter().map(|upload| {
        let began_at: Timestamp = upload
            .initiated
            .parse()
            .map_err(|_| Fault::new(Class::Corrupt, "an upload in the listing has no time"))?;
        Ok(UnfinishedUpload {
            name: decode_name(&upload.key, encoding)?,
            id: UploadId(upload.upload_id),
            began_at,
        })
    });
    let items = items.collect::<Result<_, Fault>>()?;
    let next = if is_truncated {
        let key = decode_name(&next_key_marker.unwrap_or_default(), encoding)?;
        Some(format!(
            "{key}{separator}{}",
            next_upload_id_marker.unwrap_or_default()
        ))
    } else {
        None
    };
    Ok(Page { items, next })
}

/// The request body that completes an upload.
pub(crate) fn complete_upload_body(parts: &[Part]) -> String {
    let mut text = "<CompleteMultipartUpload>".to_owned();
    for part in parts {
        let tag = escape(part.tag.as_str());
        let number = part.number;
        text.push_str("<Part><PartNumber>");
        text.push_str(&number.to_string());
        text.push_str("</PartNumber><ETag>");
        text.push_str(&tag);
        text.push_str("</ETag></Part>");
    }
    text.push_str("</CompleteMultipartUpload>");
    text
}

/// Decodes a name that the store encoded because XML cannot represent every character.
fn decode_name(name: &str, encoding: Option<&str>) -> Result<String, Fault> {
    if encoding != Some("url") {
        return Ok(name.to_owned());
    }
    let bad = || Fault::new(Class::Corrupt, "cannot decode a name in the listing");
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        rest = others;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, others) = rest.split_at_checked(2).ok_or_else(bad)?;
                let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
                bytes.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
                rest = others;
            }
            byte => bytes.push(*byte),
        }
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_parsed_with_encoded_names_and_the_next_page() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>abc=</NextContinuationToken><Contents><Key>a%2Fb+c%C3%A4%2B</Key><LastModified>2026-11-21T10:00:00.000Z</LastModified><ETag>\"x\"</ETag><Type>Normal</Type><Size>7</Size><Owner><ID>1</ID></Owner></Contents><Contents><Key>d</Key><Size>0</Size></Contents></ListBucketResult>";
        let page = parse_object_list(text).expect("read");
        let names: Vec<&str> = page.items.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a/b cä+", "d"]);
        assert_eq!((page.items[0].size, page.next.as_deref()), (7, Some("abc=")));
        assert!(page.items[0].modified.is_some());
    }

    #[test]
    fn an_empty_listing_and_a_listing_of_uploads_are_parsed() {
        let page = parse_object_list("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
            .expect("read");
        assert_eq!(page.items, []);
        let text = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>i</NextUploadIdMarker><Upload><Key>k</Key><UploadId>u</UploadId><Initiated>2026-11-21T10:00:00.000Z</Initiated></Upload></ListMultipartUploadsResult>";
        let page = parse_upload_list(text, '\n').expect("read");
        assert_eq!((page.items.len(), page.next.as_deref()), (1, Some("k\ni")));
    }

    #[test]
    fn a_listing_of_azure_is_parsed() {
        let text = "\u{feff}<?xml version=\"1.0\"?><EnumerationResults ServiceEndpoint=\"x\"><Prefix>a</Prefix><Blobs><Blob><Name>a &amp; b</Name><Properties><Last-Modified>Thu, 01 Jul 2021 10:44:59 GMT</Last-Modified><Content-Length>8</Content-Length></Properties></Blob><Blob><Name Encoded=\"true\">a%EF%BF%BE+</Name><Properties><Content-Length>1</Content-Length></Properties></Blob></Blobs><NextMarker>m</NextMarker></EnumerationResults>";
        let page = parse_blob_list(text).expect("read");
        let names: Vec<&str> = page.items.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a & b", "a\u{fffe}+"]);
        assert_eq!((page.items[0].size, page.next.as_deref()), (8, Some("m")));
        assert!(page.items[0].modified.is_some());
        let empty = "<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>";
        assert_eq!(parse_blob_list(empty).expect("read").items, []);
    }

    #[test]
    fn an_invalid_document_is_a_fault_and_no_panic() {
        for text in [
            "",
            "<html>",
            "<ListBucketResult><Contents><Size>x</Size></Contents></ListBucketResult>",
            "\0",
        ] {
            assert!(parse_object_list(text).is_err(), "{text:?}");
        }
        assert!(decode_name("%", Some("url")).is_err());
        assert!(decode_name("%zz", Some("url")).is_err());
        assert!(decode_name("%ff", Some("url")).is_err());
    }

    #[test]
    fn etags_are_escaped_in_the_completion() {
        let parts = [Part {
            number: 1,
            tag: "\"a&b\"".into(),
            size: 1,
        }];
        let text = complete_upload_body(&parts);
        assert!(
            text.contains("<PartNumber>1</PartNumber><ETag>&quot;a&amp;b&quot;</ETag>"),
            "{text}"
        );
    }
}
