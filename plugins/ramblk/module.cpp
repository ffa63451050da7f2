// SPDX-License-Identifier: Apache-2.0
// ramblk as a module: blocks in memory.
#include <verbena/core/module/start_error.hpp>
#include <verbena/plugins/modules.hpp>
#include <verbena/plugins/ramblk.hpp>

#include <verbena/core/byte_size.hpp>
#include <verbena/protocols/storage/module.hpp>

namespace verbena::ramblk {

namespace {

class ramblk_module final : public storage::block_module {
public:
    std::vector<setting> settings() const override
    {
        return {setting::text(
                    "size", "64M",
                    "Bytes, with K, M, G or T for powers of 1024; what was never written takes no memory")
                    .form("SIZE")
                    .main(),
                setting::number("block_size", {512, 4096}, 512, "Bytes of a block: 512, 1024, 2048 or 4096")};
    }
    void check(setting_values& values, const std::string& name) const override
    {
        (void)options_of(values, name);
    }
    storage::opened_block open(const setting_values& values,
                               const storage::open_block_context& context) override
    {
        ramblk_options o = options_of(values, context.name);
        o.read_only = context.read_only;
        auto opened = open_ramblk(o);
        if (!opened)
            throw_start_failure(
                opened.error(),
                context.name + ": " + opened.error().message() +
                    (opened.error() == std::errc::not_enough_memory
                         ? "; make it smaller, or serve a file, as in NAME=/srv/disk.img,size=10G"
                         : ""));
        storage::opened_block out;
        out.device = std::move(*opened);
        out.source = "ramblk";
        out.notes = std::to_string(o.size) + " bytes in memory, gone when the daemon ends";
        return out;
    }

private:
    static ramblk_options options_of(const setting_values& values, const std::string& name)
    {
        ramblk_options o;
        const auto size = parse_byte_size(values.text("size"));
        o.block_size = static_cast<std::uint32_t>(values.number("block_size"));
        if (!size)
            throw config_error(
                name + ": size \"" + values.text("size") +
                "\" is no size: write bytes, or as 64M or 2G; the path of a file has a slash, as in "
                "./disk.img");
        o.size = *size;
        if (o.size == 0 || o.size % o.block_size != 0)
            throw config_error(name + ": size " + values.text("size") + " is no whole number of blocks of " +
                               std::to_string(o.block_size) + " bytes, and one at least: write " +
                               std::to_string((o.size / o.block_size + 1) * o.block_size));
        return o;
    }
};

} // namespace

} // namespace verbena::ramblk

const verbena::module_descriptor verbena::modules::ramblk = {
    .name = "ramblk",
    .version = VERBENA_VERSION,
    .summary = "a block device in memory, gone when the program ends",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<ramblk::ramblk_module>(); },
};
