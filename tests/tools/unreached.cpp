// SPDX-License-Identifier: Apache-2.0
// A pass for clang, loaded by -fpass-plugin: takes code out of coroutines that is never reached.
//
// Of each coroutine clang makes four functions: what runs up to the first suspension, what goes on after one, and two
// that destroy. Each begins as a copy of the whole body. With optimization the passes behind take out what can't be
// reached in it. At -O0 there are none, and all four copies go through the sanitizer and the code generator: a third of
// the machine code of our tests.
#include <llvm/ADT/StringRef.h>
#include <llvm/IR/Function.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Passes/PassPlugin.h>
#include <llvm/Transforms/Scalar/SCCP.h>
#include <llvm/Transforms/Utils/Local.h>

namespace {
struct unreached_parts : llvm::PassInfoMixin<unreached_parts> {
    static bool isRequired() { return true; } // at -O0 too

    llvm::PreservedAnalyses run(llvm::Module& module, llvm::ModuleAnalysisManager& analyses)
    {
        auto& known = analyses.getResult<llvm::FunctionAnalysisManagerModuleProxy>(module).getManager();
        for (llvm::Function& function : module) {
            if (function.isDeclaration() || !is_part(module, function)) {
                continue;
            }
            // Where a cleanup leads to is a constant in the copies that destroy: this one follows it.
            llvm::SCCPPass().run(function, known);
            llvm::removeUnreachableBlocks(function);
            known.invalidate(function, llvm::PreservedAnalyses::none());
        }
        return llvm::PreservedAnalyses::none();
    }

    // Whether it is one of the four: the other three have the name of the first and an ending.
    static bool is_part(const llvm::Module& module, const llvm::Function& function)
    {
        const llvm::StringRef name = function.getName();
        return name.ends_with(".resume") || name.ends_with(".destroy") || name.ends_with(".cleanup") ||
               module.getFunction((name + ".resume").str()) != nullptr;
    }
};
} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK llvm::PassPluginLibraryInfo llvmGetPassPluginInfo()
{
    return {LLVM_PLUGIN_API_VERSION, "unreached-parts", "1", [](llvm::PassBuilder& builder) {
                // In front of the sanitizers, which register after the plugins.
                builder.registerOptimizerLastEPCallback(
                    [](llvm::ModulePassManager& passes, llvm::OptimizationLevel /*level*/) {
                        passes.addPass(unreached_parts());
                    });
            }};
}
