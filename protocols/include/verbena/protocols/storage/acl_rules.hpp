// SPDX-License-Identifier: Apache-2.0
// What an access control list means, for back ends that no kernel checks rights for: whom it lets do what, how it goes with a mode, and what is
// inherited of it (RFC 8881 6). Functions of their arguments alone, for any thread.
#pragma once

#include <verbena/protocols/storage/acl.hpp>
#include <verbena/protocols/storage/types.hpp>

#include <span>

#pragma GCC visibility push(default)

namespace verbena::storage {

/// Of some rights those that are decided. What is in neither set nobody said anything of.
struct verdict {
    std::uint32_t allowed = 0;
    std::uint32_t denied = 0;
};
/// What the entries decide for `who` of `wanted` (ace_right), in their order; entries that are only inherited say nothing (6.2.1). `of`: the file's owner and group.
verdict judge(std::span<const ace> list, const attributes& of, const credential& who,
              std::uint32_t wanted) noexcept;
/// Those of `wanted` that `who` has: what judge() allows; an owner has always read_acl, write_acl, read_attributes and write_attributes, so that he can't lock himself
/// out; and uid 0 has all but to execute a file that nobody may execute.
std::uint32_t rights_by(std::span<const ace> list, const attributes& of, const credential& who,
                        std::uint32_t wanted) noexcept;

/// The nine bits of a mode that the list amounts to (6.3.2).
std::uint32_t mode_of(std::span<const ace> list) noexcept;
/// The list after a change of the mode (6.4.1.1): mode_of() of it is `mode` & 0777, and entries for named users and groups give no more of reading, writing and executing than
/// the group's bits. Where others have more by EVERYONE@, they are denied that, until the next mode. What is only
/// inherited stays. An empty list yields what a mode alone means.
access_list with_mode(std::span<const ace> list, std::uint32_t mode);
/// What a new file, or a new directory, gets of its directory's list (6.4.3); empty if nothing.
access_list inherited(std::span<const ace> of_directory, bool makes_directory);

} // namespace verbena::storage

#pragma GCC visibility pop
