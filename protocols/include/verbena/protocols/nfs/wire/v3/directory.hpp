// SPDX-License-Identifier: Apache-2.0
// READDIR and READDIRPLUS results (RFC 1813 3.3.16 and 3.3.17), written and read entry by entry.
#pragma once

#include <verbena/protocols/nfs/wire/v3/arguments.hpp>
#include <verbena/protocols/nfs/wire/v3/types.hpp>
#include <verbena/protocols/xdr/decoder.hpp>
#include <verbena/protocols/xdr/encoder.hpp>

#pragma GCC visibility push(default)

namespace verbena::nfs::v3 {

/// An entry of READDIR. READDIR goes on behind it where it is given `cookie`.
struct entry3 {
    std::uint64_t fileid = 0;
    std::string_view name;
    std::uint64_t cookie = 0;
};

/// An entry of READDIRPLUS, with what the server knows of the file.
struct entryplus3 {
    std::uint64_t fileid = 0;
    std::string_view name;
    std::uint64_t cookie = 0;
    post_op_attr name_attributes;
    post_op_fh3 name_handle;
};

/// What stands before the entries, alike in READDIR3res and READDIRPLUS3res.
struct directory_head {
    nfsstat3 status = nfsstat3::ok;
    post_op_attr dir_attributes;
    cookieverf3 cookieverf{}; ///< if ok
};

/// Writes a whole failed result, or the head of a good one.
void encode(xdr::encoder& out, const directory_head& head) noexcept;
/// Reads the same; entries follow where the status is ok.
void decode(xdr::decoder& in, directory_head& head) noexcept;

namespace detail {
struct entry_budget {
    bool fits = false;
    std::size_t left = 0; ///< bytes for entries
};
} // namespace detail

/// Writes a READDIR3resok and keeps it within the caller's `count` and the encoder's room.
///
///     readdir_writer writer(out, args, head);       // head.status is ok
///     while (more && writer.add(entry)) ...
///     if (!writer.fits() || (writer.entries() == 0 && more)) // out.truncate(), answer toosmall
///     writer.finish(eof);
class readdir_writer {
public:
    /// Writes the head. `out` outlives this.
    readdir_writer(xdr::encoder& out, const READDIR3args& args, const directory_head& head) noexcept;

    /// False, and nothing is written, if the entry no longer fits.
    [[nodiscard]] bool add(const entry3& entry) noexcept;
    /// Ends the list. `eof`: there are no more entries behind it.
    void finish(bool eof) noexcept;
    std::size_t entries() const noexcept { return entries_; }
    /// False if not even a list without entries keeps within the limits.
    bool fits() const noexcept { return budget_.fits; }

private:
    xdr::encoder* out_;
    detail::entry_budget budget_;
    std::size_t entries_ = 0;
};

/// Writes a READDIRPLUS3resok and keeps it within `maxcount`, `dircount` and the encoder's room.
/// The first entry may exceed dircount: it is a hint, and a reply without an entry helps nobody.
class readdirplus_writer {
public:
    /// Writes the head. `out` outlives this.
    readdirplus_writer(xdr::encoder& out, const READDIRPLUS3args& args, const directory_head& head) noexcept;

    /// False, and nothing is written, if the entry no longer fits.
    [[nodiscard]] bool add(const entryplus3& entry) noexcept;
    /// Whether an entry with such a name still fits with attributes and the largest handle: to be
    /// asked before they are fetched.
    bool has_room_for(std::string_view name) const noexcept;
    /// Ends the list. `eof`: there are no more entries behind it.
    void finish(bool eof) noexcept;
    std::size_t entries() const noexcept { return entries_; }
    /// False if not even a list without entries keeps within the limits.
    bool fits() const noexcept { return budget_.fits; }

private:
    xdr::encoder* out_;
    detail::entry_budget budget_;
    std::size_t directory_budget_;
    std::size_t entries_ = 0;
};

/// Reads the entries behind a good directory_head. Names are views into the message.
///
///     while (reader.next(entry)) ...
///     if (!in.ok()) ...
///     reader.eof()
class readdir_reader {
public:
    /// `in`, which outlives it, stands behind the head.
    explicit readdir_reader(xdr::decoder& in) noexcept : in_(&in) {}
    /// False behind the last entry, and on a failure.
    bool next(entry3& entry) noexcept;
    bool eof() const noexcept { return eof_; }

private:
    xdr::decoder* in_;
    bool done_ = false;
    bool eof_ = false;
};

/// The same of READDIRPLUS.
class readdirplus_reader {
public:
    /// `in`, which outlives it, stands behind the head.
    explicit readdirplus_reader(xdr::decoder& in) noexcept : in_(&in) {}
    /// False behind the last entry, and on a failure.
    bool next(entryplus3& entry) noexcept;
    bool eof() const noexcept { return eof_; }

private:
    xdr::decoder* in_;
    bool done_ = false;
    bool eof_ = false;
};

} // namespace verbena::nfs::v3

#pragma GCC visibility pop
