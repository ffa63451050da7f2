// SPDX-License-Identifier: Apache-2.0
// Two clients of ours that lock bytes of one file of our own server's.
#pragma once

#include "nfs4_two_clients.hpp"

namespace verbena::test {

using files_lock = verbena::files::lock_type;

constexpr verbena::files::byte_range bytes_of_it(std::uint64_t first, std::uint64_t last)
{
    return {first, last};
}

struct locking_clients : two_clients {
    locking_clients()
    {
        holder.user.use_delegations(0);
        other.user.use_delegations(0);
        what = make("f");
        mine = open(holder, what, share4::access_both);
        theirs = open(other, what, share4::access_both);
        other.user.use_delegations(0);
    }
    ~locking_clients()
    {
        for (auto* each : {&mine, &theirs}) {
            if (*each)
                close(**each);
        }
        BOOST_TEST(stats().locks.value() == 0);
    }
    result<void> lock(nfs::v4::file& f, std::uint64_t first, std::uint64_t last,
                      files_lock type = files_lock::write)
    {
        return run([&] { return f.lock(bytes_of_it(first, last), type); });
    }
    bool is_denied(nfs::v4::file& f, std::uint64_t first, std::uint64_t last,
                   files_lock type = files_lock::write)
    {
        const auto done = lock(f, first, last, type);
        return !done && done.error().code() == make_error_code(nfsstat4::denied);
    }
    result<void> unlock(nfs::v4::file& f, std::uint64_t first, std::uint64_t last)
    {
        return run([&] { return f.unlock(bytes_of_it(first, last)); });
    }
    nfs::v4::node what;
    std::unique_ptr<nfs::v4::file> mine, theirs;
};

} // namespace verbena::test
