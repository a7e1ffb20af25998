//! Frames: how bytes between nodes are cut into pieces, and who sent them.
//!
//! Layout of the header, little-endian: magic (4), protocol version (2), kind (1), zero (1),
//! cluster id (16, zero before founding), sender's node id (16), sender's epoch (8), length of the
//! body (4), checksum (8). The checksum is xxh3-64 over the body, seeded with xxh3-64 of the header
//! bytes before it, so that it covers both.
//!
//! A frame that breaks a rule ends its connection: nothing after it can be trusted. Memory grows
//! with the bytes that arrived, never with a length that was only claimed.

use bytes::{Buf, BytesMut};
use kvcore::ClusterId;
use placement::{Epoch, NodeId};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Version of the protocol between nodes.
pub const PROTOCOL_VERSION: u16 = 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 60;
/// Longest body of a greeting: it holds two names and an address.
pub const GREETING_BYTES_MAX: usize = 64 << 10;
/// Longest body of any other frame: twice the largest value, with room for what is around it.
pub const BODY_BYTES_MAX: usize = 40 << 20;

const MAGIC: [u8; 4] = *b"rkvp";
/// Offset of the checksum, the header's last field.
const CHECKSUM_AT: usize = HEADER_BYTES - 8;
/// Room made for arriving bytes at a time.
const READ_BYTES: usize = 64 << 10;
/// The most room made at once for a body of which only the length has arrived.
const READ_BYTES_MAX: usize = 1 << 20;

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// The first frame of whoever opened the connection.
    Hello,
    /// The answer to it.
    HelloAnswer,
    /// Messages from core to core.
    Messages,
    /// Requests, each with an id.
    Requests,
    /// Answers, each with its request's id.
    Answers,
}

impl FrameKind {
    const fn number(self) -> u8 {
        match self {
            Self::Hello => 1,
            Self::HelloAnswer => 2,
            Self::Messages => 3,
            Self::Requests => 4,
            Self::Answers => 5,
        }
    }

    const fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Hello),
            2 => Some(Self::HelloAnswer),
            3 => Some(Self::Messages),
            4 => Some(Self::Requests),
            5 => Some(Self::Answers),
            _ => None,
        }
    }

    /// Longest body of a frame of this kind.
    #[must_use]
    pub const fn body_bytes_max(self) -> usize {
        match self {
            Self::Hello | Self::HelloAnswer => GREETING_BYTES_MAX,
            Self::Messages | Self::Requests | Self::Answers => BODY_BYTES_MAX,
        }
    }
}

/// Who sent a frame, and as what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The sender's cluster, if it belongs to one.
    pub cluster: Option<ClusterId>,
    /// The sender.
    pub node: NodeId,
    /// The epoch in force at the sender.
    pub epoch: Epoch,
}

/// A frame whose checksum was right.
#[derive(Debug)]
pub struct Frame {
    /// What it carries.
    pub kind: FrameKind,
    /// Who sent it.
    pub sender: Sender,
    /// Its body.
    pub body: BytesMut,
}

/// Why bytes are no frame.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] std::io::Error),
    /// The connection ended within a frame.
    #[error("the connection ended within a frame")]
    Truncated,
    /// The bytes do not begin a frame.
    #[error("the bytes do not begin a frame of this protocol")]
    NotAFrame,
    /// Another version of the protocol.
    #[error("protocol version {theirs} is not {PROTOCOL_VERSION}, the one spoken here")]
    Version {
        /// The version found.
        theirs: u16,
    },
    /// A kind that this version does not know.
    #[error("frames of kind {number} are not known")]
    UnknownKind {
        /// The number found.
        number: u8,
    },
    /// The body is longer than its kind may be.
    #[error("a body of {bytes} bytes is too long")]
    TooLong {
        /// The length found.
        bytes: usize,
    },
    /// The checksum is wrong.
    #[error("the checksum is wrong")]
    Checksum,
}

/// Appends a frame to `buffer`; `write_body` appends the body.
///
/// # Errors
/// [`FrameError::TooLong`] when the body is longer than its kind may be; the buffer is then as it
/// was before.
pub fn append_frame<T>(
    buffer: &mut Vec<u8>,
    kind: FrameKind,
    sender: &Sender,
    write_body: impl FnOnce(&mut Vec<u8>) -> T,
) -> Result<T, FrameError> {
    let start = buffer.len();
    buffer.extend_from_slice(&MAGIC);
    buffer.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    buffer.extend_from_slice(&[kind.number(), 0]);
    buffer.extend_from_slice(&sender.cluster.map_or(0, |cluster| cluster.0).to_le_bytes());
    buffer.extend_from_slice(&sender.node.as_u128().to_le_bytes());
    buffer.extend_from_slice(&sender.epoch.get().to_le_bytes());
    buffer.resize(start + HEADER_BYTES, 0);
    let written = write_body(buffer);
    let bytes = buffer.len() - start - HEADER_BYTES;
    let length = u32::try_from(bytes).ok().filter(|_| bytes <= kind.body_bytes_max());
    let Some(length) = length else {
        buffer.truncate(start);
        return Err(FrameError::TooLong { bytes });
    };
    let frame = &mut buffer[start..];
    frame[CHECKSUM_AT - 4..CHECKSUM_AT].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(frame);
    frame[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(written)
}

fn checksum(frame: &[u8]) -> u64 {
    xxh3_64_with_seed(&frame[HEADER_BYTES..], xxh3_64(&frame[..CHECKSUM_AT]))
}

/// A header that was read; its body may not have arrived yet.
struct Header {
    kind: FrameKind,
    sender: Sender,
    length: usize,
    checksum: u64,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let bytes: &mut &[u8] = &mut &bytes[..];
        let mut magic = [0; 4];
        bytes.copy_to_slice(&mut magic);
        if magic != MAGIC {
            return Err(FrameError::NotAFrame);
        }
        let version = bytes.get_u16_le();
        if version != PROTOCOL_VERSION {
            return Err(FrameError::Version { theirs: version });
        }
        let number = bytes.get_u8();
        let kind = FrameKind::of_number(number).ok_or(FrameError::UnknownKind { number })?;
        if bytes.get_u8() != 0 {
            return Err(FrameError::NotAFrame);
        }
        let cluster = bytes.get_u128_le();
        let sender = Sender {
            cluster: (cluster != 0).then_some(ClusterId(cluster)),
            node: NodeId::from_u128(bytes.get_u128_le()),
            epoch: Epoch::new(bytes.get_u64_le()),
        };
        let length = usize::try_from(bytes.get_u32_le()).unwrap_or(usize::MAX);
        if length > kind.body_bytes_max() {
            return Err(FrameError::TooLong { bytes: length });
        }
        Ok(Self { kind, sender, length, checksum: bytes.get_u64_le() })
    }
}

/// Cuts a stream of bytes into frames.
#[derive(Debug)]
pub struct FrameReader<R> {
    source: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads frames from `source`.
    pub fn new(source: R) -> Self {
        Self { source, buffer: BytesMut::new() }
    }

    /// The next frame; none when the connection ended between frames. Nothing is lost when the
    /// future is dropped before it is ready.
    ///
    /// # Errors
    /// [`FrameError`]; the connection must then be closed.
    pub async fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if !self.fill(HEADER_BYTES).await? {
            return if self.buffer.is_empty() { Ok(None) } else { Err(FrameError::Truncated) };
        }
        let header = self.buffer[..HEADER_BYTES].try_into().expect("that many bytes are there");
        let header = Header::parse(header)?;
        if !self.fill(HEADER_BYTES + header.length).await? {
            return Err(FrameError::Truncated);
        }
        if checksum(&self.buffer[..HEADER_BYTES + header.length]) != header.checksum {
            return Err(FrameError::Checksum);
        }
        self.buffer.advance(HEADER_BYTES);
        let body = self.buffer.split_to(header.length);
        Ok(Some(Frame { kind: header.kind, sender: header.sender, body }))
    }

    /// Memory held for what has not been handed out.
    #[cfg(test)]
    pub fn buffered_capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Reads until `wanted` bytes are buffered; `false` if the stream ended before.
    async fn fill(&mut self, wanted: usize) -> Result<bool, FrameError> {
        while self.buffer.len() < wanted {
            let missing = wanted - self.buffer.len();
            self.buffer.reserve(missing.clamp(READ_BYTES, READ_BYTES_MAX));
            if self.source.read_buf(&mut self.buffer).await? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
