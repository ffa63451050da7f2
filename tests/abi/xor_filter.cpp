// SPDX-License-Identifier: Apache-2.0
// A filter as an author may write it who thinks of reads and writes alone: what lies below is not what callers see.
#include <verbena/core/module/loadable.hpp>
#include <verbena/protocols/storage/forwarding_backend.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <vector>

namespace {

using namespace verbena;

void change(std::span<std::byte> data, std::uint64_t offset)
{
    for (std::byte& b : data)
        b ^= static_cast<std::byte>(offset++ * 7 + 90);
}

class xor_files final : public storage::forwarding_backend {
public:
    using forwarding_backend::forwarding_backend;
    task<result<storage::read_result>> read(const storage::request& r, const storage::handle& file,
                                            std::uint64_t offset, std::span<std::byte> out) override
    {
        auto done = co_await below().read(r, file, offset, out);
        if (done)
            change(out.first(done->count), offset);
        co_return done;
    }
    task<result<storage::write_result>> write(const storage::request& r, const storage::handle& file,
                                              std::uint64_t offset,
                                              std::span<const std::span<const std::byte>> pieces,
                                              storage::stability wanted) override
    {
        std::vector<std::byte> all;
        for (const auto piece : pieces)
            all.insert(all.end(), piece.begin(), piece.end());
        change(all, offset);
        const std::span<const std::byte> changed(all);
        const std::span<const std::span<const std::byte>> one(&changed, 1);
        auto done = co_await below().write(r, file, offset, one, wanted);
        co_return done;
    }
};

class xor_module final : public storage::filter_module {
public:
    void put_on(storage::opened_backend& on, const setting_values&, const storage::open_context&) override
    {
        on.files = std::make_unique<xor_files>(std::move(on.files));
    }
};

const module_descriptor descriptor = {
    .name = "xor",
    .version = "0.0.1",
    .summary = "changes each byte",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<xor_module>(); },
};

} // namespace

VERBENA_MODULE(filter, descriptor);
