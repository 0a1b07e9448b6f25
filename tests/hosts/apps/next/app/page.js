"use client";
import { useEffect } from "react";
import { ByteTokenizer, Dataset, Model, Runtime, Trainer } from "tinyloom";
import { attention } from "tinyloom/ops";
import { show, work } from "../body.js";

let begun = false; // React runs an effect twice in development
export default function Page() {
  useEffect(() => {
    if (begun || typeof attention.forward !== "function") return;
    begun = true;
    show(work({ ByteTokenizer, Dataset, Model, Runtime, Trainer }));
  }, []);
  return <p>host</p>;
}
