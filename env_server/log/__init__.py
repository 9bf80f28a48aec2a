"""The log: append, read, recover, export.

**The format.** A log is a directory of segments, `NNNNNNNN-XXXXXXXX.rgl`: a number of eight
digits, a dash, and letters that no other writer draws. A writer begins a segment of its own when
it opens the log and whenever one has come to 256 MiB, each time with the number after the highest
that there is. It only appends, and holds an exclusive flock on each of its segments while it
lives: a session belongs to whoever holds the segment of its latest record. To go on with a session
of a dead writer, another one takes the flock of that segment, and holds it from then on.
Segments are read in the order of their names, each from its first byte to its last.

A segment is a row of frames, and nothing else. A frame:

    offset  size  what
    0       4     FF 52 47 4C (0xFF "RGL")
    4       4     length of the payload, u32, little-endian, at most 16,777,216
    8       4     CRC-32 (as in zlib) over bytes 4 to 7 and the payload, u32, little-endian
    12      ...   payload: one serialised railgym.v1.EpisodeEvent

Where no good frame begins, a reader looks for the next place where one does: the magic, a length
within bounds, the right checksum. What it passes over is damage. If what is left at the end of a
segment begins as a frame does and is cut off, with no good frame after it, it is torn: its writer
died within it, or is still at it. That is no damage. It is not read, and the next writer cuts it
off once its own is dead. (If the rest is a whole frame but for its length, it is damage.)

**The chain.** Of one session, the first record has the sequence 0 and no `previous_sha256`; each
further one has the next sequence and the SHA-256 over the payload of the one before, byte for
byte. Sessions are interleaved. When a session goes on with another writer, that writer's segment
stands later in the order of names (`LogWriter.continue_after`). A reader skips kinds and fields
that it does not know, but counts and hashes their records.

The chain shows damage and what was taken out, put in or altered before a session's last record.
It is no signature: who can write the log can write another one. Whether a record tells the truth
is decided by running the episode again. A record lost at the very end of a session looks like a
crash.

`env_server.log.export` is not imported here, since it brings DuckDB.
"""

from env_server.log.chain import Chain, Kind
from env_server.log.episodes import episodes, group
from env_server.log.frames import Damage, Torn
from env_server.log.index import LogIndex
from env_server.log.logged import LoggedEpisode, Problem
from env_server.log.reader import NotALog, Record, read
from env_server.log.segments import is_live
from env_server.log.writer import LogUnwritable, LogWriter

__all__ = [
    "Chain",
    "Damage",
    "Kind",
    "LogIndex",
    "LogUnwritable",
    "LogWriter",
    "LoggedEpisode",
    "NotALog",
    "Problem",
    "Record",
    "Torn",
    "episodes",
    "group",
    "is_live",
    "read",
]
