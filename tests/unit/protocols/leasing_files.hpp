// SPDX-License-Identifier: Apache-2.0
// A back end whose files local processes may want, as far as leases go.
#pragma once

#include <verbena/core/event.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>

#include <cerrno>
#include <functional>
#include <memory>
#include <vector>

namespace verbena::test {

class leasing_files final : public storage::forwarding_backend {
public:
    explicit leasing_files(storage::file_backend& below) : forwarding_backend(below), info_(below.info())
    {
        info_.leases = true;
    }
    const storage::filesystem_info& info() const noexcept override { return info_; }
    task<result<std::unique_ptr<storage::file_lease>>> lease(const storage::handle&,
                                                             storage::lease_wanted wanted) override
    {
        ++asked;
        wanted_ = std::move(wanted);
        if (holds)
            (void)co_await go.wait();
        if (refuses_with != 0)
            co_return error::from_errno(refuses_with, "a lease");
        std::unique_ptr<storage::file_lease> made = std::make_unique<one>(*this);
        co_return made;
    }
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> pieces,
                                              storage::stability how) override
    {
        note_change();
        return below().write(r, file, offset, pieces, how);
    }
    task<result<storage::change>> setattr(const storage::request& r, const storage::handle& file,
                                          const storage::set_attributes& set,
                                          std::optional<storage::file_time> guard) override
    {
        if (set.size)
            note_change();
        return below().setattr(r, file, set, guard);
    }
    /// A process of this host opens the file of the last lease for writing.
    void local_writer() { wanted_(); }

    int asked = 0;
    int out = 0;     ///< leases
    int changes = 0; ///< of data
    int broken = 0;  ///< of these while a lease was out
    bool holds = false;
    event go;
    int refuses_with = 0;

private:
    struct one final : storage::file_lease {
        explicit one(leasing_files& o) noexcept : of(o) { ++of.out; }
        ~one() override { --of.out; }
        leasing_files& of;
    };
    void note_change()
    {
        ++changes;
        broken += out != 0;
    }
    storage::filesystem_info info_;
    storage::lease_wanted wanted_;
};

} // namespace verbena::test
