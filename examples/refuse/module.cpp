// SPDX-License-Identifier: Apache-2.0
// A module of your own: the filter refuse, which lets nothing get a name that matches a pattern.
//
//   modules = ["/path/of/refuse.so"]
//
//   [[nfs.export]]
//   directory = "/srv/data"
//
//   [[nfs.export.filter]]
//   name = "refuse"
//   pattern = "*.exe"
#include "filter.hpp"

#include <verbena/core/module/loadable.hpp>
#include <verbena/protocols/storage/module.hpp>

#include <memory>
#include <string>
#include <vector>

using namespace verbena;

namespace {

class refuse_module final : public storage::filter_module {
public:
    // What a table [[nfs.export.filter]] of it may hold.
    std::vector<setting> settings() const override
    {
        return {setting::text("pattern", "", "Names that nothing gets, as a pattern of the shell")};
    }
    // `name` says which table of which export it is.
    void check(setting_values& values, const std::string& name) const override
    {
        if (values.text("pattern").empty())
            throw config_error(values.place(), name + " needs a pattern, as in pattern = \"*.exe\"");
    }
    void put_on(storage::opened_backend& on, const setting_values& values,
                const storage::open_context& context) override
    {
        auto made = std::make_unique<refuse::filter>(std::move(on.files), values.text("pattern"));
        // These end before on.files does, so they may read it.
        on.metrics.push_back(context.metrics.add(
            {"refuse_names_total", "Names that were refused.", metric_type::counter, "names", {"export"}, 64},
            [&count = made->refused(), label = context.label](metric_sink& out) {
                out.value({label}, value_of(count));
            }));
        on.options.push_back("pattern=" + values.text("pattern")); // for the first lines that verbenad prints
        on.files = std::move(made);
    }
};

const module_descriptor descriptor = {
    .name = "refuse",
    .version = "1.0",
    .summary = "nothing gets a name that matches a pattern",
    .create = []() -> std::unique_ptr<module> { return std::make_unique<refuse_module>(); },
};

} // namespace

VERBENA_MODULE(filter, descriptor);
