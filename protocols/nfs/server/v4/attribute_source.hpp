// SPDX-License-Identifier: Apache-2.0
// What GETATTR and its like tell of an object, and which attributes there are.
#pragma once

#include "call_context.hpp"
#include "handle_space.hpp"
#include "owner_names.hpp"

#include <verbena/core/task/task.hpp>
#include <verbena/protocols/files/options.hpp>
#include <verbena/protocols/nfs/server/state_home.hpp>
#include <verbena/protocols/nfs/server/v4/storage.hpp>
#include <verbena/protocols/nfs/wire/v4/attributes.hpp>

#include <cstdint>
#include <optional>

namespace verbena::nfs::v4 {

/// What READDIR may say of an entry without asking the back end for its attributes.
inline constexpr bitmap4 of_names = {attribute::fileid, attribute::mounted_on_fileid,
                                     attribute::rdattr_error};
/// What SETATTR may name, and what CREATE and OPEN may. No back end sets a time of birth, so that who tries hears
/// INVAL, as of all that can only be read.
inline constexpr bitmap4 settable_attributes = attributes_for_setattr - bitmap4{attribute::time_create};
inline constexpr bitmap4 settable_at_creation = attributes_for_create - bitmap4{attribute::time_create};
/// What is asked of the file system, not of the file.
inline constexpr bitmap4 of_space = {attribute::files_avail, attribute::files_free, attribute::files_total,
                                     attribute::space_avail, attribute::space_free, attribute::space_total};
/// What EXCLUSIVE4_1 may name (8881 5.8.1.14): a back end may keep the verifier in the times.
inline constexpr bitmap4 attributes_for_exclusive =
    settable_at_creation - bitmap4{attribute::time_access_set, attribute::time_modify_set};
/// `asked` but for the mode of a symbolic link: no back end sets it.
inline bitmap4 without_mode_of_link(bitmap4 asked, const std::optional<storage::attributes>& of) noexcept
{
    if (of && of->type == storage::file_type::symlink) {
        asked.reset(attribute::mode);
        asked.reset(attribute::mode_umask);
    }
    return asked;
}
/// `asked` but for what a creation left as it would have been anyway: back ends let root alone give files away, and
/// take no notice of others who name an owner.
inline bitmap4 set_at_creation(bitmap4 asked, const storage::set_attributes& set,
                               const std::optional<storage::attributes>& made) noexcept
{
    asked = without_mode_of_link(asked, made);
    if (set.uid && (!made || made->uid != *set.uid))
        asked.reset(attribute::owner);
    if (set.gid && (!made || made->gid != *set.gid))
        asked.reset(attribute::owner_group);
    return asked;
}

/// Whether files of its file system are reached by layouts, too.
bool has_layouts(const object& of) noexcept;

/// What the file system of `of` has, in a minor version.
bitmap4 supported_attributes_of(const object& of, std::uint32_t minor) noexcept;

/// One shard's.
class attribute_source {
public:
    /// All is borrowed for as long as this lives. `started` is when the server was, in seconds since 1970: the times
    /// of the pseudo file system.
    attribute_source(handle_space& handles, owner_names& names, const files::state_options& options,
                     std::int64_t started)
        : handles_(handles), names_(names), options_(options), started_(started)
    {
    }

    /// `kept`, if given: what a client keeps to itself of the file; then `known` is what the back end had in front
    /// of that client's answer. Without `kept`, `known` is what the file has, and then the back end is not asked.
    task<nfsstat4> values_of(call_context& k, const object& of, bitmap4 wanted, object_values& out,
                             const kept_attributes* kept = nullptr,
                             const storage::attributes* known = nullptr);
    /// The ACL alone.
    static task<nfsstat4> values_of_acl(const object& of, object_values& out);

    // --- For listings, which have the back end's attributes

    /// What is the same for all objects of a file system.
    void set_constants(const object& of, std::uint32_t minor, object_values& out) const noexcept;
    void set_file(const object& of, const storage::attributes& attrs, object_values& out) const noexcept;
    /// mounted_on_fileid of an export's root that lies in another one, if that one's directory is known.
    void set_covered(const object& root, object_values& out) const noexcept;

private:
    void set_pseudo(const rpc::call& c, const pseudo_node& node, object_values& out);

    handle_space& handles_;
    owner_names& names_;
    const files::state_options& options_;
    const std::int64_t started_;
};

} // namespace verbena::nfs::v4
