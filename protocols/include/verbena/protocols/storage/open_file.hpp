// SPDX-License-Identifier: Apache-2.0
// open_file: a file that somebody has open, and what he may do with it.
#pragma once

#include <verbena/protocols/storage/types.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// What file_backend::open() returns. While a file has an open_file it exists, even without a name, and its handle works for
/// everybody. When the last one goes, a file without a name goes too, and its room is free. Calls of the opener that bear one
/// (request::open) read and write by the rights that it was opened with, whatever became of the mode since.
///
/// Lifetime: the back end outlives it. Shard: made, used and destroyed on any; it does not change. Destroying it may take as
/// long as a close().
class open_file {
public:
    /// `granted`: R_OK, W_OK, both or neither: what the opener may do without being asked again. So whoever may write no more than
    /// at the end (an ACL's right to append) is granted no W_OK.
    open_file(const credential& opener, unsigned granted)
        : uid_(opener.uid),
          gid_(opener.gid),
          granted_(granted),
          shared_(opener.shared()),
          groups_(shared_ ? nullptr : opener.groups().data(),
                  shared_ ? nullptr : opener.groups().data() + opener.groups().size())
    {
    }
    open_file(const open_file&) = delete;
    virtual ~open_file() = default;

    unsigned granted() const noexcept { return granted_; }
    /// Where the file lies now beneath the exported directory, for people: "/directory/name". The octets of a name are as its
    /// maker chose them. " (deleted)" stands behind a name that is gone. Empty: the back end does not know it. The answer is good
    /// for this moment alone. Any shard or thread. It never waits for a disk, also while one hangs. Throws std::bad_alloc.
    virtual std::string path_now() const { return {}; }
    /// Whether `who` may do this (R_OK or W_OK) because he was let in by it. Others are asked for their rights.
    bool lets(const credential& who, unsigned use) const noexcept
    {
        return (granted_ & use) == use && who.uid == uid_ && who.gid == gid_ &&
               ((shared_ && shared_ == who.shared()) ||
                std::ranges::equal(who.groups(), shared_ ? *shared_ : groups_));
    }

private:
    const std::uint32_t uid_;
    const std::uint32_t gid_;
    const unsigned granted_;
    const shared_groups shared_;              // of the opener, which may be long
    const std::vector<std::uint32_t> groups_; // or those that he has himself
};

/// Whether file_backend::open() asks for the caller's rights.
enum class open_right : std::uint8_t {
    asked,
    granted, ///< he has just made the file: who makes one may open it, whatever its mode
};

/// What file_backend::open() yields.
struct opened_file {
    std::shared_ptr<const open_file> file; ///< keeps the file open; shared with what reads from it
    attributes attrs;                      ///< of the file, when it was opened
};

} // namespace verbena::storage

#pragma GCC visibility pop
