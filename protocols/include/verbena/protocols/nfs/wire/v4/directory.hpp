// SPDX-License-Identifier: Apache-2.0
// READDIR's results (8881 18.23), written and read entry by entry.
#pragma once

#include <verbena/protocols/nfs/wire/v4/file_operations.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

#pragma GCC visibility push(default)

namespace verbena::nfs::v4 {

/// The head of READDIR's results; the entries stand behind it.
struct READDIR4res {
    static constexpr nfs_opnum4 opcode = nfs_opnum4::readdir;
    nfsstat4 status = nfsstat4::ok;
    verifier4 cookieverf{};
};

/// Cookies 0 to 2 are never of an entry, and "." and ".." never are one.
struct entry4 {
    std::uint64_t cookie = 0; ///< READDIR goes on behind this entry
    component4 name;
    fattr4 attrs;
};

/// Writes a READDIR4resok behind compound_results::begin(), and keeps it within maxcount, dircount and the room that there is.
///
///     readdir_writer writer(results.begin(nfs_opnum4::readdir), args, verifier, results.room());
///     while (more && writer.add(cookie, name, wanted, values)) ...
///     if (!writer.fits() || (writer.entries() == 0 && more)) // results.undo(), answer toosmall
///     writer.finish(eof), results.end()
///
/// dircount is a hint: the first entry may exceed it, and 0 is none.
class readdir_writer {
public:
    /// `room` is in bytes. `out` outlives this.
    readdir_writer(xdr::encoder& out, const READDIR4args& args, const verifier4& cookieverf,
                   std::size_t room) noexcept;

    /// False, and nothing is written, if the entry no longer fits.
    [[nodiscard]] bool add(std::uint64_t cookie, std::string_view name, const bitmap4& wanted,
                           const attributes& values) noexcept;
    /// Not if fits() is false.
    void finish(bool eof) noexcept;
    std::size_t entries() const noexcept { return entries_; }
    /// False if not even a list without entries, which takes 16 bytes, keeps within the limits.
    bool fits() const noexcept { return fits_; }

private:
    xdr::encoder* out_;
    std::size_t left_ = 0;       // bytes for entries
    std::size_t directory_left_; // bytes for cookies and names
    std::size_t entries_ = 0;
    bool fits_ = false;
};

/// Reads the entries behind a good READDIR4res. Names and values are views into the message.
///
///     while (reader.next(entry)) ...
///     if (!in.ok()) ...
///     reader.eof()
class readdir_reader {
public:
    /// `in`, which outlives it, stands behind the verifier.
    explicit readdir_reader(xdr::decoder& in) noexcept : in_(&in) {}
    /// False behind the last entry, and on a failure.
    bool next(entry4& entry) noexcept;
    bool eof() const noexcept { return eof_; }

private:
    xdr::decoder* in_;
    bool done_ = false;
    bool eof_ = false;
};

} // namespace verbena::nfs::v4

#pragma GCC visibility pop
