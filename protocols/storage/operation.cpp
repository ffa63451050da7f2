// SPDX-License-Identifier: Apache-2.0
#include <verbena/protocols/storage/operation.hpp>

#include <array>

namespace verbena::storage {

namespace {

constexpr std::array<std::string_view, operation_count> operation_names = {
    "getattr",  "setattr",  "lookup",     "access",      "open",     "readlink",   "read",   "write",
    "create",   "mkdir",    "symlink",    "mknod",       "remove",   "rmdir",      "rename", "link",
    "readdir",  "statfs",   "commit",     "seek",        "allocate", "deallocate", "copy",   "clone",
    "getxattr", "setxattr", "listxattrs", "removexattr", "getacl",
};

} // namespace

std::string_view to_string(operation op) noexcept { return operation_names[unsigned(op)]; }

result<operation_set> parse_operations(std::string_view name)
{
    if (name == "all")
        return operation_set::all();
    if (name == "metadata")
        return operation_set::metadata();
    if (name == "changes")
        return operation_set::changes();
    if (name == "sync")
        return operation_set(operation::commit);
    for (unsigned i = 0; i < operation_count; ++i) {
        if (name == operation_names[i])
            return operation_set(operation(i));
    }
    return error(std::errc::invalid_argument,
                 "operations: no such name; take all, metadata, changes, sync or one of a back end's "
                 "operations (getattr, read, write, create...)");
}

} // namespace verbena::storage
